//! Asks the linker for packed relocations: the program takes some 3 MiB less of memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |key: &str, value| std::env::var(key).is_ok_and(|of| of == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
