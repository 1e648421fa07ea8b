//! Compiles the rule files into the binary, so that a new file needs no list to be kept.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this"));
    let mut list = String::from("/// Name below `rules/`, and text.\n");
    list.push_str("pub(super) static FILES: &[(&str, &str)] = &[\n");
    for folder in ["schedules", "presets"] {
        println!("cargo::rerun-if-changed=rules/{folder}");
        let entries = fs::read_dir(root.join("rules").join(folder)).expect("the rules' folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("a readable entry").file_name().into_string())
            .map(|name| name.expect("a name in UTF-8"))
            .filter(|name| name.ends_with(".yaml"))
            .collect();
        names.sort();
        for name in names {
            // The manifest folder is put in by the compiler and is no part of the binary.
            writeln!(
                list,
                "    (\"{folder}/{name}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \
                 \"/rules/{folder}/{name}\"))),"
            )
            .expect("writing to text cannot fail");
        }
    }
    list.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets this"));
    fs::write(out.join("embedded_rules.rs"), list).expect("a writable output folder");
}
