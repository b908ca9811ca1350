//! Selection of instructions: the backends that this CPU supports, and the fastest loop for a
//! number of streams.
//!
//! Every loop has the measured time of one pass: a block in each of its lanes. The times are from
//! one core of a Zen 4, with the data in its caches. A pass costs the same with one used lane as
//! with all. The cost of `n` streams is therefore the number of passes times that, and the cheapest
//! loop is selected. Other CPUs have other times. Only their ratios matter here, and a wrong ratio
//! only costs speed.

use super::LaneAlgorithm;
use super::compression::{Compression, Job, run};
use super::md5::Md5;
use super::register::{MAX_LANES, Register};
use super::sha1::Sha1;
use super::sha2::{Sha256, Sha512};
use std::sync::OnceLock;
use thiserror::Error;

/// Backends that [`limit_backends`] permits; all if it was not called before the first use.
static PERMITTED: OnceLock<Vec<Backend>> = OnceLock::new();

/// Set of instructions that hashes several streams in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// AVX-512F and BW: 16 lanes of 32 bits (MD5 also 32), 8 of 64 bits.
    Avx512,
    /// AVX2: 8 lanes of 32 bits (MD5 also 16), 4 of 64 bits.
    Avx2,
    /// The SHA instructions of x86, two or four streams interleaved: SHA-1, SHA-224 and SHA-256
    /// only.
    ShaNi,
    /// SSE2, which every x86-64 has: 4 lanes of 32 bits, 2 of 64 bits.
    Sse2,
    /// Plain words, on any CPU.
    Portable,
}

impl Backend {
    /// All backends, on any CPU.
    pub const ALL: [Backend; 5] =
        [Backend::Avx512, Backend::Avx2, Backend::ShaNi, Backend::Sse2, Backend::Portable];

    /// Returns the name that [`limit_backends`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Avx512 => "avx512",
            Backend::Avx2 => "avx2",
            Backend::ShaNi => "sha-ni",
            Backend::Sse2 => "sse2",
            Backend::Portable => "portable",
        }
    }

    /// Returns true if this build and this CPU support the backend, and [`limit_backends`] permits
    /// it.
    pub fn is_available(self) -> bool {
        PERMITTED.get_or_init(|| Backend::ALL.to_vec()).contains(&self) && self.is_supported()
    }

    /// Returns true if this build and this CPU support the backend.
    fn is_supported(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Backend::ShaNi => {
                is_x86_feature_detected!("sha")
                    && is_x86_feature_detected!("ssse3")
                    && is_x86_feature_detected!("sse4.1")
            }
            Backend::Sse2 => cfg!(target_arch = "x86_64"),
            Backend::Portable => true,
            #[cfg(not(target_arch = "x86_64"))]
            Backend::Avx512 | Backend::Avx2 | Backend::ShaNi => false,
        }
    }
}

/// Reason why the backends cannot be limited.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LimitError {
    /// A name is none of a backend.
    #[error("unknown name '{0}': valid names are {names}", names = names())]
    Unknown(String),
    /// A digest was computed before.
    #[error("backends are in use already")]
    InUse,
}

/// Returns the names of all backends, separated by commas.
fn names() -> String {
    Backend::ALL.map(Backend::name).join(", ")
}

/// Limits the lanes of this process to the backends in `list`, names that commas separate. Plain
/// words stay permitted, because some algorithms have no other loop on some CPUs. A backend that
/// this CPU lacks is not an error, so that one list fits different CPUs.
///
/// The limit cannot change after the first use of lanes, which must therefore come later.
///
/// # Errors
///
/// Returns [`LimitError::Unknown`] for a name of no backend, and [`LimitError::InUse`] if lanes
/// were in use before. In both cases nothing changes.
pub fn limit_backends(list: &str) -> Result<(), LimitError> {
    let mut permitted = parse(list)?;
    if !permitted.contains(&Backend::Portable) {
        permitted.push(Backend::Portable);
    }
    PERMITTED.set(permitted).map_err(|_| LimitError::InUse)
}

/// Parses names that commas separate.
fn parse(list: &str) -> Result<Vec<Backend>, LimitError> {
    let one = |name: &str| {
        let found = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| LimitError::Unknown(name.to_owned()))
    };
    list.split(',').map(str::trim).map(one).collect()
}

/// Returns the backends that this CPU supports and [`limit_backends`] permits.
pub fn backends() -> Vec<Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available()).collect()
}

/// A compression loop over a number of lanes, created only if the CPU supports its instructions.
#[derive(Clone, Copy)]
struct Kernel {
    /// Number of streams that it processes in parallel.
    lanes: usize,
    /// Nanoseconds per pass: one block in every lane.
    pass: usize,
    run: unsafe fn(&mut [Job<'_>], &[usize], usize),
}

impl Kernel {
    /// Returns a loop without requirements on the CPU beyond the target's baseline.
    fn plain<C: Compression, R: Register<Word = C::Word>>(pass: usize) -> Kernel {
        Kernel { lanes: R::LANES, pass, run: run::<C, R> }
    }

    /// Returns the loops of one backend for one algorithm; none if this CPU lacks the backend or
    /// the backend lacks the algorithm.
    fn of(backend: Backend, algorithm: LaneAlgorithm) -> Vec<Kernel> {
        if !backend.is_available() {
            return Vec::new();
        }
        if backend == Backend::Portable {
            return match algorithm {
                LaneAlgorithm::Md5 => {
                    vec![Kernel::plain::<Md5, u32>(88), Kernel::plain::<Md5, [u32; 4]>(262)]
                }
                LaneAlgorithm::Sha1 => vec![Kernel::plain::<Sha1, u32>(73)],
                LaneAlgorithm::Sha224 | LaneAlgorithm::Sha256 => vec![Kernel::plain::<Sha256, u32>(178)],
                LaneAlgorithm::Sha384 | LaneAlgorithm::Sha512 => vec![Kernel::plain::<Sha512, u64>(225)],
            };
        }
        #[cfg(target_arch = "x86_64")]
        return x86::kernels(backend, algorithm);
        #[cfg(not(target_arch = "x86_64"))]
        Vec::new()
    }

    /// Returns the nanoseconds for one block of each of `streams` streams.
    fn cost(&self, streams: usize) -> usize {
        streams.div_ceil(self.lanes) * self.pass
    }
}

/// Loops with instructions that only some x86 CPUs have.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::avx2::{Ymm32, Ymm64};
    use super::super::avx512::{Zmm32, Zmm64};
    use super::super::register::Pair;
    use super::super::sha_ni;
    use super::super::sse2::{Xmm32, Xmm64};
    use super::{
        Backend, Compression, Job, Kernel, LaneAlgorithm as A, Md5, Register, Sha1, Sha256, Sha512, run,
    };

    /// Returns the loops of one x86 backend for one algorithm. The caller must have checked that
    /// the CPU supports it.
    pub(super) fn kernels(backend: Backend, algorithm: A) -> Vec<Kernel> {
        match (backend, algorithm) {
            (Backend::Avx512, A::Md5) => vec![avx512::<Md5, Zmm32>(123), avx512::<Md5, Pair<Zmm32>>(170)],
            (Backend::Avx512, A::Sha1) => vec![avx512::<Sha1, Zmm32>(141)],
            (Backend::Avx512, A::Sha224 | A::Sha256) => vec![avx512::<Sha256, Zmm32>(288)],
            (Backend::Avx512, A::Sha384 | A::Sha512) => vec![avx512::<Sha512, Zmm64>(350)],
            (Backend::Avx2, A::Md5) => vec![avx2::<Md5, Ymm32>(111), avx2::<Md5, Pair<Ymm32>>(135)],
            (Backend::Avx2, A::Sha1) => vec![avx2::<Sha1, Ymm32>(119)],
            (Backend::Avx2, A::Sha224 | A::Sha256) => vec![avx2::<Sha256, Ymm32>(288)],
            (Backend::Avx2, A::Sha384 | A::Sha512) => vec![avx2::<Sha512, Ymm64>(356)],
            (Backend::ShaNi, A::Sha1) => {
                vec![Kernel { lanes: sha_ni::SHA1_STREAMS, pass: 57, run: sha_ni::sha1 }]
            }
            (Backend::ShaNi, A::Sha224 | A::Sha256) => {
                vec![Kernel { lanes: sha_ni::SHA256_STREAMS, pass: 39, run: sha_ni::sha256 }]
            }
            (Backend::Sse2, A::Md5) => vec![Kernel::plain::<Md5, Xmm32>(107)],
            (Backend::Sse2, A::Sha1) => vec![Kernel::plain::<Sha1, Xmm32>(122)],
            (Backend::Sse2, A::Sha224 | A::Sha256) => vec![Kernel::plain::<Sha256, Xmm32>(294)],
            (Backend::Sse2, A::Sha384 | A::Sha512) => vec![Kernel::plain::<Sha512, Xmm64>(376)],
            _ => Vec::new(),
        }
    }

    fn avx512<C: Compression, R: Register<Word = C::Word>>(pass: usize) -> Kernel {
        Kernel { lanes: R::LANES, pass, run: run_avx512::<C, R> }
    }

    fn avx2<C: Compression, R: Register<Word = C::Word>>(pass: usize) -> Kernel {
        Kernel { lanes: R::LANES, pass, run: run_avx2::<C, R> }
    }

    /// [`run`], compiled for AVX-512.
    ///
    /// # Safety
    ///
    /// The CPU must have AVX-512F and AVX-512BW, and `R` must not require more.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn run_avx512<C: Compression, R: Register<Word = C::Word>>(
        jobs: &mut [Job<'_>],
        lanes: &[usize],
        blocks: usize,
    ) {
        // SAFETY: the caller guarantees the instructions of `R`.
        unsafe { run::<C, R>(jobs, lanes, blocks) }
    }

    /// [`run`], compiled for AVX2.
    ///
    /// # Safety
    ///
    /// The CPU must have AVX2, and `R` must not require more.
    #[target_feature(enable = "avx2")]
    unsafe fn run_avx2<C: Compression, R: Register<Word = C::Word>>(
        jobs: &mut [Job<'_>],
        lanes: &[usize],
        blocks: usize,
    ) {
        // SAFETY: the caller guarantees the instructions of `R`.
        unsafe { run::<C, R>(jobs, lanes, blocks) }
    }
}

/// Assignment of numbers of streams to loops.
#[derive(Clone)]
pub(super) struct Plan {
    /// The cheapest loop for `index + 1` streams; the length is the number of slots.
    by_streams: Vec<Kernel>,
    /// Size of a block in bytes.
    block: usize,
}

impl Plan {
    /// Returns the plan with the fastest loop of this CPU for each number of streams.
    pub(super) fn best(algorithm: LaneAlgorithm) -> Plan {
        Plan::with(&Backend::ALL, algorithm)
            .unwrap_or_else(|| unreachable!("plain words run on every CPU and know every algorithm"))
    }

    /// Returns a plan with those of these backends that are available, if one of them has the
    /// algorithm.
    pub(super) fn with(backends: &[Backend], algorithm: LaneAlgorithm) -> Option<Plan> {
        let kernels: Vec<Kernel> =
            backends.iter().flat_map(|&backend| Kernel::of(backend, algorithm)).collect();
        Plan::among(&kernels, algorithm)
    }

    /// Returns a plan with one backend only, if this CPU supports it and it has the algorithm.
    pub(super) fn only(backend: Backend, algorithm: LaneAlgorithm) -> Option<Plan> {
        Plan::with(&[backend], algorithm)
    }

    /// Returns the best plan with these loops. It has as many slots as the loop with the highest
    /// rate has lanes.
    fn among(kernels: &[Kernel], algorithm: LaneAlgorithm) -> Option<Plan> {
        let rate = |kernel: &&Kernel| kernel.lanes * 1_000_000 / kernel.pass;
        let width = kernels.iter().max_by_key(rate)?.lanes.min(MAX_LANES);
        let cheapest = |streams| kernels.iter().min_by_key(|kernel| kernel.cost(streams)).copied();
        let by_streams = (1..=width).map(cheapest).collect::<Option<Vec<_>>>()?;
        Some(Plan { by_streams, block: algorithm.block_len() })
    }

    /// Returns the number of streams that this CPU processes best: `1..=MAX_LANES`.
    pub(super) fn width(&self) -> usize {
        self.by_streams.len()
    }

    /// Completes all jobs, and keeps as many lanes in use as there are jobs. Afterwards the state
    /// of each job is that after its last block.
    pub(super) fn complete(&self, jobs: &mut [Job<'_>]) {
        let mut lanes = [0; MAX_LANES];
        let mut active = 0;
        let mut waiting = 0;
        loop {
            while active < self.width() && waiting < jobs.len() {
                if !jobs[waiting].now.is_empty() {
                    lanes[active] = waiting;
                    active += 1;
                }
                waiting += 1;
            }
            let Some(blocks) = lanes[..active].iter().map(|&job| jobs[job].now.len() / self.block).min()
            else {
                return;
            };
            let kernel = self.by_streams[active - 1];
            for group in lanes[..active].chunks(kernel.lanes) {
                // SAFETY: only `Kernel::of` creates kernels, after a check that the CPU supports
                // their instructions.
                unsafe { (kernel.run)(jobs, group, blocks) }
            }
            let mut left = 0;
            for lane in 0..active {
                let job = lanes[lane];
                jobs[job].advance(blocks * self.block);
                if !jobs[job].now.is_empty() {
                    lanes[left] = job;
                    left += 1;
                }
            }
            active = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_are_parsed_and_unknown_names_listed() {
        assert_eq!(parse("sha-ni, sse2"), Ok(vec![Backend::ShaNi, Backend::Sse2]));
        for backend in Backend::ALL {
            assert_eq!(parse(backend.name()), Ok(vec![backend]));
        }
        let text = parse("sse2,avx").unwrap_err().to_string();
        assert_eq!(text, "unknown name 'avx': valid names are avx512, avx2, sha-ni, sse2, portable");
        assert_eq!(parse(""), Err(LimitError::Unknown(String::new())));
    }
}
