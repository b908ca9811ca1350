//! Tests against published values.

use crate::pattern;
use haul_digest::{Algorithm, Digest, Hasher, digest};

/// Values of one algorithm.
///
/// For the digits, the values of CRC-32C, CRC-64 and CRC-16 are the `check` values of the catalogue
/// of parametrised CRC algorithms. zlib's CRC-32 and Adler-32 come from zlib. `cksum` and the two
/// sums of `sum` come from GNU coreutils, MD5 to BLAKE2b from OpenSSL, BLAKE3 from b3sum, and XXH
/// from xxhsum. The other values of the CRCs come from a bitwise implementation of the catalogue.
struct Vectors {
    algorithm: Algorithm,
    empty: &'static str,
    /// Over "123456789".
    digits: &'static str,
    /// Over [`pattern`] of 65,537 bytes.
    pattern_65537: &'static str,
    /// SHA-256 over the concatenated digests of [`pattern`] of 0, 1, ... 1,100 bytes.
    sweep: &'static str,
}

#[test]
fn every_algorithm_matches_its_published_values() {
    let mut covered: Vec<Algorithm> = Vec::new();
    for vectors in &VECTORS {
        let algorithm = vectors.algorithm;
        assert_eq!(digest(algorithm, b"").to_string(), vectors.empty, "{algorithm} of nothing");
        assert_eq!(digest(algorithm, b"123456789").to_string(), vectors.digits, "{algorithm} of the digits");
        let long = digest(algorithm, &pattern(65_537)).to_string();
        assert_eq!(long, vectors.pattern_65537, "{algorithm} of the long pattern");
        covered.push(algorithm);
    }
    assert_eq!(covered, Algorithm::ALL);
}

#[test]
fn lengths_up_to_1100_match_the_reference_tools() {
    let longest = pattern(1100);
    for vectors in &VECTORS {
        let mut sweep = Hasher::new(Algorithm::Sha256);
        for len in 0..=longest.len() {
            sweep.update(digest(vectors.algorithm, &longest[..len]).as_bytes());
        }
        assert_eq!(sweep.finish().to_string(), vectors.sweep, "{}", vectors.algorithm);
    }
}

#[test]
fn examples_of_the_standards_match() {
    let abc = |algorithm, expected: &str| assert_eq!(digest(algorithm, b"abc").to_string(), expected);
    // RFC 1321, A.5.
    abc(Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72");
    // FIPS 180-4 and FIPS 202, example values of NIST.
    abc(Algorithm::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d");
    abc(Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    abc(Algorithm::Sha3_256, "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532");
    abc(Algorithm::Sha3_224, "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf");
    // GB/T 32905-2016, A.1.
    abc(Algorithm::Sm3, "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0");
    // RFC 7693, appendix A.
    abc(
        Algorithm::Blake2b,
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1\
         7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
    );
    // RFC 3720, B.4: 32 bytes of 0, of 0xff, counting up.
    let crc32c = |bytes: [u8; 32]| digest(Algorithm::Crc32c, &bytes).value();
    assert_eq!(crc32c([0; 32]), Some(0x8a91_36aa));
    assert_eq!(crc32c([0xff; 32]), Some(0x62a8_ab43));
    assert_eq!(crc32c(std::array::from_fn(|at| at as u8)), Some(0x46dd_794e));
    // NIST: a million times 'a'.
    let million = vec![b'a'; 1_000_000];
    assert_eq!(digest(Algorithm::Sha1, &million).to_string(), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    // BLAKE3's test_vectors.json: lengths around a chunk of 1,024 bytes.
    for (len, expected) in [
        (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
        (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
        (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
    ] {
        assert_eq!(digest(Algorithm::Blake3, &pattern(len)).to_string(), expected, "{len} bytes");
    }
}

#[test]
fn eos_and_xz_differ_in_more_than_byte_order() {
    let value = |algorithm| digest(algorithm, b"123456789").value().unwrap();
    let (eos, xz) = (value(Algorithm::Crc64Eos), value(Algorithm::Crc64Xz));
    assert_eq!((eos, xz), (0x6c40_df5f_0b49_7347, 0x995d_c9bb_df19_39fa));
    assert!(![xz, !xz, xz.swap_bytes(), xz.reverse_bits(), !xz.reverse_bits()].contains(&eos));
}

#[test]
fn parsed_hex_digest_equals_the_computed_digest() {
    for vectors in &VECTORS {
        let read = Digest::from_hex(vectors.algorithm, vectors.digits).unwrap();
        assert_eq!(read, digest(vectors.algorithm, b"123456789"));
    }
}

static VECTORS: [Vectors; 27] = [
    Vectors {
        algorithm: Algorithm::Adler32,
        empty: "00000001",
        digits: "091e01de",
        pattern_65537: "6f96fc55",
        sweep: "27ccdb514a792b57b0ad8bfb276822c1acec92043c933924b96754cbced5118b",
    },
    Vectors {
        algorithm: Algorithm::Crc32,
        empty: "00000000",
        digits: "cbf43926",
        pattern_65537: "a9cc6e73",
        sweep: "224e58ef963d5d54733870179e193fe897db39ba265a9dd4387ef69c4b1f8e10",
    },
    Vectors {
        algorithm: Algorithm::Crc32c,
        empty: "00000000",
        digits: "e3069283",
        pattern_65537: "4537bb82",
        sweep: "af247bf7bf720c453b49c9a0d38295599526c59369eddae7a800a53f206e9b69",
    },
    Vectors {
        algorithm: Algorithm::Cksum,
        empty: "ffffffff",
        digits: "377a6011",
        pattern_65537: "764b5abc",
        sweep: "ce951ebfffeea1d72067cf1a0f0c3da25d246a15cddc8afa4b8cd1b216e0fe2b",
    },
    Vectors {
        algorithm: Algorithm::Crc64Nvme,
        empty: "0000000000000000",
        digits: "ae8b14860a799888",
        pattern_65537: "c28f4c8c1b7fd9a6",
        sweep: "ebbf34e91d66e384b164377dfa3744d0f39b8b92f1685e9a72c4420c4b55d011",
    },
    Vectors {
        algorithm: Algorithm::Crc64Xz,
        empty: "0000000000000000",
        digits: "995dc9bbdf1939fa",
        pattern_65537: "e4989e107d90754d",
        sweep: "a0907f399af11114ccfd647e0ca404d2ec2ab8cdda25c56c0eb4b965f22c0a89",
    },
    Vectors {
        algorithm: Algorithm::Crc64Eos,
        empty: "0000000000000000",
        digits: "6c40df5f0b497347",
        pattern_65537: "c16250b9c6c15ae2",
        sweep: "b3ecc69aae6af712038c58747657848d57d21a6bee36a248c593c95d61675aa0",
    },
    Vectors {
        algorithm: Algorithm::Crc16,
        empty: "0000",
        digits: "906e",
        pattern_65537: "a115",
        sweep: "18d1bb2f5f904138dac5244aca2c42b71a3390542bab11c24ad006550a97e84b",
    },
    Vectors {
        algorithm: Algorithm::Bsd,
        empty: "0000",
        digits: "d16f",
        pattern_65537: "fd03",
        sweep: "f3f42aab2757d2a4b2f8a9e71ac8fc1aa979f7c9a9b9616f9abd249d789f61d0",
    },
    Vectors {
        algorithm: Algorithm::Sysv,
        empty: "0000",
        digits: "01dd",
        pattern_65537: "f58c",
        sweep: "ce43434d9faf0f26481d6ced991b37bd2c696aab3803d64ab9c234afaf8b4391",
    },
    Vectors {
        algorithm: Algorithm::Md5,
        empty: "d41d8cd98f00b204e9800998ecf8427e",
        digits: "25f9e794323b453885f5181f1b624d0b",
        pattern_65537: "4c2641c7fe5c93d3aed7c406629ff0ab",
        sweep: "af16f0706378e80eff565e2a0d47820e1d2e1868a72d29c8b8a9d967beb09fd1",
    },
    Vectors {
        algorithm: Algorithm::Sha1,
        empty: "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        digits: "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
        pattern_65537: "74c69f8e2c886f87f68d52d16c30e9b4790513c9",
        sweep: "6e73634f2562476197884b6807d8286c0006a675c23cdd50c8884341388b42c0",
    },
    Vectors {
        algorithm: Algorithm::Sha224,
        empty: "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f",
        digits: "9b3e61bf29f17c75572fae2e86e17809a4513d07c8a18152acf34521",
        pattern_65537: "e20733058ac5d107f3ceccb6b832c01042ba63e2f5fe390d93a44c8b",
        sweep: "8449aa671c48d9be06e1714c0f928bbc20a887bb815db11099a2a429f8d093b4",
    },
    Vectors {
        algorithm: Algorithm::Sha256,
        empty: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        digits: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        pattern_65537: "237356e18b503616912abb8ffaed3a72591e397d4ac294c4637917d48a3f529d",
        sweep: "da065e1424b4e31be28ab4673235903a28a117539bc731c8ff3499e07e1c973e",
    },
    Vectors {
        algorithm: Algorithm::Sha384,
        empty: "38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
        digits: "eb455d56d2c1a69de64e832011f3393d45f3fa31d6842f21af92d2fe469c499da5e3179847334a18479c8d1dedea1be3",
        pattern_65537: "cbaa7b728fa53f652e3b5c9d087a41bcfaa2157dff043fef980c3a4dc9ae08d7be60b919b564423a3e1d285d9691b093",
        sweep: "ba1c6359bc287ab0d8ce91b14275b14c44daaaea334a7a0bc7122963365ae030",
    },
    Vectors {
        algorithm: Algorithm::Sha512,
        empty: "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
        digits: "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
        pattern_65537: "40224346b91b835ee1ed51d2c849bc6701ea8d969c8038bea206d19118ef30ec5a37d52330d38ef3c8938fc86319dc9869fc65935223753c54535abc8980bac3",
        sweep: "1719e2652bbd5cb0d554a99b0f97be37b306499d61d77b78a6f43f07ab7cbb64",
    },
    Vectors {
        algorithm: Algorithm::Sha3_224,
        empty: "6b4e03423667dbb73b6e15454f0eb1abd4597f9a1b078e3f5b5a6bc7",
        digits: "5795c3d628fd638c9835a4c79a55809f265068c88729a1a3fcdf8522",
        pattern_65537: "86e974c0bf685609ef7c3dae3e0ca1a0706b5d0866c8b5ef801ae217",
        sweep: "53be32df3c413ef6962d1c5046b04b0426d639a49b3751a13fe3280f8a09d0ac",
    },
    Vectors {
        algorithm: Algorithm::Sha3_256,
        empty: "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
        digits: "87cd084d190e436f147322b90e7384f6a8e0676c99d21ef519ea718e51d45f9c",
        pattern_65537: "21014f64282e56d8bb9f5ac983116242f7df2f0f9ce064d6dea6ccde3815905c",
        sweep: "3fb438bc0c07efba1760117d5681ba825db91ac111fa491e8a6347571c829ee7",
    },
    Vectors {
        algorithm: Algorithm::Sha3_384,
        empty: "0c63a75b845e4f7d01107d852e4c2485c51a50aaaa94fc61995e71bbee983a2ac3713831264adb47fb6bd1e058d5f004",
        digits: "8b90ede4d095409f1a12492c2520599683a9478dc70b7566d23b3e41ece8538c6cde92382a5e38786490375c54672abf",
        pattern_65537: "a215e023b85bad7ef5545c881ae075117203d73aaa22ad82377825a6d44ce81f6931457ec9bfd1f3a288238efd4dc7f7",
        sweep: "c733283a1564c815a81c360c94dc1ab3a6c4b98083e7ec17e5512617e01fdb80",
    },
    Vectors {
        algorithm: Algorithm::Sha3_512,
        empty: "a69f73cca23a9ac5c8b567dc185a756e97c982164fe25859e0d1dcc1475c80a615b2123af1f5f94c11e3e9402c3ac558f500199d95b6d3e301758586281dcd26",
        digits: "e1e44d20556e97a180b6dd3ed7ae5c465cafd553fa8747dca038fb95635b77a37318f7ddf7aec1f6c3c14bb160ba2497007decf38dd361cab199e3b8c8fe1f5c",
        pattern_65537: "26002c09d7337beef17596ab78566f3fedfae0d4762ef123bf0f01175771d823b98903474129c1dba64235319dc646d6f11c3121a877d76b295993b0efead0e9",
        sweep: "75a2c846d85c8ff6ec8f08af27837fa1c3f2cd5f0119efbe53d7a6940a66a04c",
    },
    Vectors {
        algorithm: Algorithm::Sm3,
        empty: "1ab21d8355cfa17f8e61194831e81a8f22bec8c728fefb747ed035eb5082aa2b",
        digits: "c7ae0aec3d2f9beb84dc1885aa7a576baa7a07b38060afc64c5600f93a5456b5",
        pattern_65537: "82adb47461f58ba4a932fe0290e7c9ab8101c311fdceb6802102a0f2a7aae845",
        sweep: "0f695607d52eccee3b6d18c0b77a394333cb5a8b87dd223e83f29d2f20f762ef",
    },
    Vectors {
        algorithm: Algorithm::Blake2b,
        empty: "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce",
        digits: "f5ab8bafa6f2f72b431188ac38ae2de7bb618fb3d38b6cbf639defcdd5e10a86b22fccff571da37e42b23b80b657ee4d936478f582280a87d6dbb1da73f5c47d",
        pattern_65537: "17e60f0b76a810a5f7213fa8936fae7880289a4750651bd768f8dbaa3c8d6d44671f7c6feb32ff90e03b296134a1e6b762219532635ffa3ecb5fd4f60149810c",
        sweep: "1689231ead223ed3198fc086fa69790aada28d17135afb5d25c6631aa729ded5",
    },
    Vectors {
        algorithm: Algorithm::Blake3,
        empty: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        digits: "b7d65b48420d1033cb2595293263b6f72eabee20d55e699d0df1973b3c9deed1",
        pattern_65537: "7c99f9840a73dfcb6e5bfe4ff6d1558acab7e015640790c26411818bdbe17eca",
        sweep: "f69a62f179ef7dcc8ac68cae4fea5b50d952de17c963b1636d93a1039f862216",
    },
    Vectors {
        algorithm: Algorithm::Xxh32,
        empty: "02cc5d05",
        digits: "937bad67",
        pattern_65537: "c72ed498",
        sweep: "59de476c978371076fd3f4bdf2b3ffab1df6608423fee4f68e3d8b8ca5e5b695",
    },
    Vectors {
        algorithm: Algorithm::Xxh64,
        empty: "ef46db3751d8e999",
        digits: "8cb841db40e6ae83",
        pattern_65537: "8c8e0218a8ee0fee",
        sweep: "6fabe8a72c0cfba3cf4f99d2b7f50975e768d04d70995ef035bbd68bbad32f4b",
    },
    Vectors {
        algorithm: Algorithm::Xxh3_64,
        empty: "2d06800538d394c2",
        digits: "72dcb18b67a17dff",
        pattern_65537: "70331d53d92bbc56",
        sweep: "e038a3c9b0bf22060f7bf07aa157a21a1279618886b4c10f46826acb2740f42e",
    },
    Vectors {
        algorithm: Algorithm::Xxh3_128,
        empty: "99aa06d3014798d86001c324468d497f",
        digits: "33119477ede5dcd5e9716427681d5860",
        pattern_65537: "0924e7a3a30e818770331d53d92bbc56",
        sweep: "945703e184a7a49fa8437e1504426c6999656ba2f534b82fa67f14d822fa04d6",
    },
];
