//! Compiles every `kernels/*.cu` with nvcc into one fatbin each, and writes the list that `src/driver/module.rs` embeds.
//!
//! Two variables, for builds alone: `CUDAFAST_CUDA_ARCHS` narrows the architectures (`90a`, or `80,90a`), and `CUDA_PATH`
//! names a toolkit. Without it, `.cuda/` at the root of the repository (tools/cuda-toolchain.sh) comes before `PATH`.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

#[path = "../quant/src/formats/iq_words.rs"]
mod iq_words;

use iq_words::{IQ2_XS_PACKED, IQ2_XXS_PACKED, IQ3_XXS_PACKED};

/// Machine code for each, and PTX of the first for whatever comes later (design.md 5). A row shares the PTX of its first,
/// which takes longer to make than machine code: headers distinguish architectures at 90 and nowhere else, so each alone
/// would come out the same. A file that asks for its architecture itself gets PTX for every one.
const FAMILIES: &[&[&str]] = &[&["80", "86", "89"], &["90a"], &["100", "120", "121"]];

/// Compiled first, as they take longest: the others fit around them.
const LONGEST: &[&str] = &["matvec", "gemm"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../quant/src/formats/iq_words.rs");
    println!("cargo::rerun-if-env-changed=CUDAFAST_CUDA_ARCHS");
    println!("cargo::rerun-if-env-changed=CUDA_PATH");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let archs = archs()?;
    println!("cargo::rustc-env=CUDAFAST_CUDA_BUILT_FOR={}", names(&archs));
    // Clippy reads no machine code.
    if env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| wrapper.to_string_lossy().contains("clippy-driver"))
    {
        fs::write(out.join("fatbins.rs"), "static FATBINS: &[(&str, &[u8])] = &[];\n")?;
        return Ok(());
    }
    let nvcc = nvcc()?;
    let sources = sources()?;
    fs::write(out.join("iq_grids.cuh"), iq_grids()?)?;
    compile_all(&nvcc, &archs, &sources, &out)?;
    let mut list = String::from("static FATBINS: &[(&str, &[u8])] = &[\n");
    for source in &sources {
        let stem = stem(source)?;
        let fatbin = out.join(format!("{stem}.fatbin"));
        // Quoted as Rust quotes strings, whatever the path.
        writeln!(list, "    ({stem:?}, include_bytes!({:?})),", fatbin.display().to_string())?;
    }
    list.push_str("];\n");
    fs::write(out.join("fatbins.rs"), list)?;
    Ok(())
}

/// The grids of the IQ formats as the kernels include them, from the words that cudafast-quant has.
fn iq_grids() -> Result<String, std::fmt::Error> {
    let mut text = String::from("#pragma once\n#include <cstdint>\n");
    let grids: [(&str, &[u16]); 3] =
        [("IQ2_XXS", &IQ2_XXS_PACKED), ("IQ2_XS", &IQ2_XS_PACKED), ("IQ3_XXS", &IQ3_XXS_PACKED)];
    for (name, rows) in grids {
        write!(text, "static __device__ const uint16_t {name}_ROWS[{}] = {{", rows.len())?;
        for row in rows {
            write!(text, "{row},")?;
        }
        text.push_str("};\n");
    }
    Ok(text)
}

/// How a user knows them: `sm_80, sm_90a`, and the PTX for later ones where it is inside.
fn names(archs: &[String]) -> String {
    let mut names: Vec<String> = archs.iter().map(|arch| format!("sm_{arch}")).collect();
    let known = FAMILIES.concat();
    if archs.len() == known.len() {
        names.push(format!("compute_{}", known[0]));
    }
    names.join(", ")
}

fn stem(path: &Path) -> Result<&str, String> {
    path.file_stem().and_then(|s| s.to_str()).ok_or_else(|| format!("{}: not a name", path.display()))
}

fn nvcc() -> Result<PathBuf, String> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?).join("../..");
    let name = format!("nvcc{}", env::consts::EXE_SUFFIX);
    let mut tried: Vec<PathBuf> =
        env::var_os("CUDA_PATH").map(|p| PathBuf::from(p).join("bin").join(&name)).into_iter().collect();
    tried.push(root.join(".cuda/nvidia/cu13/bin").join(&name));
    tried.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|p| p.join(&name)));
    tried.iter().find(|p| p.is_file()).cloned().ok_or_else(|| {
        "feature `cuda` needs nvcc 13: run tools/cuda-toolchain.sh, or set CUDA_PATH to a toolkit, or build without the feature"
            .to_owned()
    })
}

fn archs() -> Result<Vec<String>, String> {
    let known = FAMILIES.concat();
    let Ok(list) = env::var("CUDAFAST_CUDA_ARCHS") else {
        return Ok(known.iter().map(|&a| a.to_owned()).collect());
    };
    let archs: Vec<String> = list.split(',').map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect();
    match archs.iter().find(|a| !known.contains(&a.as_str())) {
        Some(bad) => Err(format!("CUDAFAST_CUDA_ARCHS: `{bad}` is not one of {}", known.join(", "))),
        None if archs.is_empty() => Err(format!("CUDAFAST_CUDA_ARCHS is empty; name some of {}", known.join(", "))),
        None => Ok(archs),
    }
}

/// One argument of `-gencode` a PTX: the row's PTX, or each architecture's own if the file has code for single ones.
fn targets(archs: &[String], single: bool) -> Vec<String> {
    let known = FAMILIES.concat();
    let single_rows: Vec<&[&str]> = known.chunks(1).collect();
    let mut targets = Vec::new();
    for row in if single { &single_rows } else { FAMILIES } {
        let mut codes: Vec<String> =
            row.iter().filter(|a| archs.iter().any(|b| b == *a)).map(|a| format!("sm_{a}")).collect();
        if archs.len() == known.len() && row[0] == known[0] {
            codes.push(format!("compute_{}", row[0]));
        }
        if !codes.is_empty() {
            targets.push(format!("arch=compute_{},code=[{}]", row[0], codes.join(",")));
        }
    }
    targets
}

fn sources() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir("kernels")? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "cu") {
            sources.push(path);
        }
    }
    sources.sort_by_cached_key(|path| (!LONGEST.iter().any(|name| stem(path) == Ok(name)), path.clone()));
    Ok(sources)
}

/// As many at once as cargo grants jobs. The resource table goes to `OUT_DIR/resources.txt`.
fn compile_all(nvcc: &Path, archs: &[String], sources: &[PathBuf], out: &Path) -> Result<(), Box<dyn Error>> {
    let jobs: usize = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.min(sources.len()) {
            scope.spawn(|| {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = compile(nvcc, archs, source, out);
                    results.lock().unwrap_or_else(|e| e.into_inner()).push((source, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(source, _)| source.as_path());
    let mut table = String::new();
    for (source, result) in results {
        let log = result.map_err(|e| format!("{}: {e}", source.display()))?;
        resources(stem(source)?, &log, &mut table)?;
    }
    fs::write(out.join("resources.txt"), table)?;
    Ok(())
}

fn compile(nvcc: &Path, archs: &[String], source: &Path, out: &Path) -> Result<String, String> {
    let fatbin = out.join(format!("{}.fatbin", stem(source)?));
    let mut command = Command::new(nvcc);
    command.args(["-fatbin", "-std=c++17", "-O3", "-Xptxas", "-v", "-Werror", "all-warnings", "--compress-mode=size"]);
    let single = fs::read_to_string(source).map_err(|e| e.to_string())?.contains("__CUDA_ARCH__");
    for target in targets(archs, single) {
        command.arg("-gencode").arg(target);
    }
    let done = command
        .arg("-I")
        .arg(out)
        .arg("-o")
        .arg(fatbin)
        .arg(source)
        .output()
        .map_err(|e| format!("{}: {e}", nvcc.display()))?;
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() { Ok(log) } else { Err(format!("nvcc failed:\n{log}")) }
}

/// One line a kernel and architecture: registers, spilled bytes, shared bytes; spills are a warning too.
fn resources(file: &str, log: &str, table: &mut String) -> Result<(), Box<dyn Error>> {
    let (mut kernel, mut spills) = (String::new(), String::new());
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function ").nth(1) {
            kernel = rest.replace('\'', "").replace(" for", "");
        } else if line.contains("spill stores") {
            spills = line
                .split(',')
                .skip(1)
                .map(|s| s.trim().split(' ').next().unwrap_or("?"))
                .collect::<Vec<_>>()
                .join("+");
        } else if let Some(rest) = line.split("Used ").nth(1) {
            writeln!(table, "{file} {kernel} | {rest} | spilled {spills}")?;
            if spills != "0+0" {
                println!("cargo::warning={file}: {kernel} spills {spills} bytes");
            }
        }
    }
    Ok(())
}
