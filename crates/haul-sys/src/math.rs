//! The five functions of the C library's `libm` that plot drawing needs, taken from a crate
//! instead.
//!
//! As a shared library they would be located, mapped and relocated at each start of every tool.
//! This takes a twentieth of the time of a call for a small file.
//!
//! The linker uses these definitions because they precede those of any library. No symbol then
//! requires `libm.so`.

macro_rules! functions {
    ($($name:ident($($x:ident),+);)+) => {$(
        // SAFETY: signature and meaning are those of the C standard for this name; results are
        // exact to the last digit or the one before.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($x: f64),+) -> f64 {
            libm::$name($($x),+)
        }
    )+};
}

functions! {
    exp(x);
    exp2(x);
    log(x);
    log10(x);
    pow(x, y);
}
