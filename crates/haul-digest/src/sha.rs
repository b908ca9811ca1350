//! The Secure Hash Standards, SHA-1, SHA-2 and SHA-3, of one stream, by AWS-LC. Its assembly uses
//! the SHA instructions of the CPU, and its Keccak was a quarter faster than others. In WebAssembly
//! RustCrypto is used.

pub(crate) use backend::Sha;

/// Member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShaKind {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha3_256,
    Sha3_384,
    Sha3_512,
}

#[cfg(not(target_family = "wasm"))]
mod backend {
    use super::ShaKind;
    use aws_lc_rs::digest::{self, Context};

    /// A running SHA-1, SHA-2 or SHA-3.
    #[derive(Clone)]
    pub(crate) struct Sha(Context);

    impl Sha {
        pub(crate) fn new(kind: ShaKind) -> Sha {
            // The library may be built so that it detects the CPU features only on request.
            aws_lc_rs::init();
            Sha(Context::new(match kind {
                ShaKind::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
                ShaKind::Sha224 => &digest::SHA224,
                ShaKind::Sha256 => &digest::SHA256,
                ShaKind::Sha384 => &digest::SHA384,
                ShaKind::Sha512 => &digest::SHA512,
                ShaKind::Sha3_256 => &digest::SHA3_256,
                ShaKind::Sha3_384 => &digest::SHA3_384,
                ShaKind::Sha3_512 => &digest::SHA3_512,
            }))
        }

        pub(crate) fn update(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        /// Passes the bytes of the digest to `use_bytes`.
        pub(crate) fn finish<T>(self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
            use_bytes(self.0.finish().as_ref())
        }
    }
}

#[cfg(target_family = "wasm")]
mod backend {
    use super::ShaKind;
    use sha2::Digest;

    /// A running SHA-1, SHA-2 or SHA-3.
    #[derive(Clone)]
    pub(crate) enum Sha {
        Sha1(sha1::Sha1),
        Sha224(sha2::Sha224),
        Sha256(sha2::Sha256),
        Sha384(sha2::Sha384),
        Sha512(sha2::Sha512),
        Sha3_256(sha3::Sha3_256),
        Sha3_384(sha3::Sha3_384),
        Sha3_512(sha3::Sha3_512),
    }

    impl Sha {
        pub(crate) fn new(kind: ShaKind) -> Sha {
            match kind {
                ShaKind::Sha1 => Sha::Sha1(Digest::new()),
                ShaKind::Sha224 => Sha::Sha224(Digest::new()),
                ShaKind::Sha256 => Sha::Sha256(Digest::new()),
                ShaKind::Sha384 => Sha::Sha384(Digest::new()),
                ShaKind::Sha512 => Sha::Sha512(Digest::new()),
                ShaKind::Sha3_256 => Sha::Sha3_256(Digest::new()),
                ShaKind::Sha3_384 => Sha::Sha3_384(Digest::new()),
                ShaKind::Sha3_512 => Sha::Sha3_512(Digest::new()),
            }
        }

        pub(crate) fn update(&mut self, bytes: &[u8]) {
            match self {
                Sha::Sha1(inner) => inner.update(bytes),
                Sha::Sha224(inner) => inner.update(bytes),
                Sha::Sha256(inner) => inner.update(bytes),
                Sha::Sha384(inner) => inner.update(bytes),
                Sha::Sha512(inner) => inner.update(bytes),
                Sha::Sha3_256(inner) => inner.update(bytes),
                Sha::Sha3_384(inner) => inner.update(bytes),
                Sha::Sha3_512(inner) => inner.update(bytes),
            }
        }

        /// Passes the bytes of the digest to `use_bytes`.
        pub(crate) fn finish<T>(self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
            match self {
                Sha::Sha1(inner) => use_bytes(&inner.finalize()),
                Sha::Sha224(inner) => use_bytes(&inner.finalize()),
                Sha::Sha256(inner) => use_bytes(&inner.finalize()),
                Sha::Sha384(inner) => use_bytes(&inner.finalize()),
                Sha::Sha512(inner) => use_bytes(&inner.finalize()),
                Sha::Sha3_256(inner) => use_bytes(&inner.finalize()),
                Sha::Sha3_384(inner) => use_bytes(&inner.finalize()),
                Sha::Sha3_512(inner) => use_bytes(&inner.finalize()),
            }
        }
    }
}
