#![no_main]

use haul_net::Identity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(identity) = Identity::from_pem(&String::from_utf8_lossy(data)) {
        let again = Identity::from_pem(&identity.to_pem()).expect("its own text is parsed");
        assert_eq!(again.fingerprint(), identity.fingerprint());
    }
});
