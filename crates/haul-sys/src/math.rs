//! The five functions of the C library's `libm` that drawing plots needs, taken from a crate instead. As a shared library they
//! would be found, mapped and relocated at each start of every tool: a twentieth of what a call for a small file takes.
//!
//! The linker takes these definitions because they come before any library's; then nothing asks for `libm.so`.

macro_rules! functions {
    ($($name:ident($($x:ident),+);)+) => {$(
        // SAFETY: the C standard's signature and meaning of this name, to the last digit or the one before.
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
