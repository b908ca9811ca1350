//! MD5 of one stream, by AWS-LC. Its safe crate does not provide MD5, so this module calls the C
//! functions. In WebAssembly `md-5` is used.

pub(crate) use backend::Md5;

#[cfg(not(target_family = "wasm"))]
mod backend {
    use aws_lc_sys::{MD5_CTX, MD5_Final, MD5_Init, MD5_Update};

    /// A running MD5.
    #[derive(Clone)]
    pub(crate) struct Md5 {
        context: MD5_CTX,
    }

    impl Md5 {
        pub(crate) fn new() -> Md5 {
            let mut context = MD5_CTX { h: [0; 4], Nl: 0, Nh: 0, data: [0; 64], num: 0 };
            // SAFETY: MD5_Init writes one MD5_CTX, plain numbers without pointers, through a valid,
            // exclusive pointer, and does not keep the pointer.
            let done = unsafe { MD5_Init(&raw mut context) };
            assert_eq!(done, 1, "MD5_Init has no way to fail");
            Md5 { context }
        }

        pub(crate) fn update(&mut self, bytes: &[u8]) {
            // SAFETY: `context` was initialized by MD5_Init and is borrowed exclusively. MD5_Update
            // reads exactly `bytes.len()` bytes from the pointer of the slice, which is never null,
            // and keeps neither pointer.
            let done = unsafe { MD5_Update(&raw mut self.context, bytes.as_ptr().cast(), bytes.len()) };
            assert_eq!(done, 1, "MD5_Update has no way to fail");
        }

        pub(crate) fn finish(mut self) -> [u8; 16] {
            let mut digest = [0; 16];
            // SAFETY: `context` was initialized by MD5_Init and is owned. MD5_Final writes
            // MD5_DIGEST_LENGTH = 16 bytes to `digest`, which has 16, and keeps neither pointer.
            let done = unsafe { MD5_Final(digest.as_mut_ptr(), &raw mut self.context) };
            assert_eq!(done, 1, "MD5_Final has no way to fail");
            digest
        }
    }
}

#[cfg(target_family = "wasm")]
mod backend {
    use md5::Digest;

    /// A running MD5.
    #[derive(Clone)]
    pub(crate) struct Md5(md5::Md5);

    impl Md5 {
        pub(crate) fn new() -> Md5 {
            Md5(md5::Md5::new())
        }

        pub(crate) fn update(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        pub(crate) fn finish(self) -> [u8; 16] {
            self.0.finalize().into()
        }
    }
}
