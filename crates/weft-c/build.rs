//! Gives the library the name that programs look for: it changes when they must be compiled anew.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libweft.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
