//! Compiles the program that drives libnfs. Small programs show by their exit status what is installed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{BenchError, Console};

const SOURCE: &str = include_str!("../../../../benches/peers/nfs/libnfs.c");
/// A program that needs only the compiler.
const EMPTY: &str = "int main(void) { return 0; }\n";
/// A program that needs libnfs, whose header doesn't include its own dependencies.
const WITH_LIBNFS: &str = "#include <sys/time.h>\n#include <nfsc/libnfs.h>\n\
     int main(void) { return nfs_init_context() == 0; }\n";
/// A program that needs the libnfs 4 interface, which the benchmark uses.
const WITH_INTERFACE: &str = "#include <sys/time.h>\n#include <nfsc/libnfs.h>\n\
     #include <nfsc/libnfs-raw.h>\n#include <nfsc/libnfs-raw-nfs.h>\n\
     int main(void) { return rpc_nfs3_getattr_async == 0; }\n";

/// Compiles the program; `None`, with a note, if something is not installed.
pub(super) fn compile(folder: &Path, output: &dyn Console) -> Result<Option<PathBuf>, BenchError> {
    let build =
        |source: &str, name: &str, libraries: &[&str]| build(folder, source, name, libraries);
    match build(EMPTY, "empty", &[])? {
        Compiled::Program(_) => {}
        Compiled::NoCompiler => {
            output.note("left out: cc is not installed (Debian package gcc), so libnfs is missing");
            return Ok(None);
        }
        Compiled::Failed(said) => {
            let what = format!("cc cannot compile an empty program: {said}");
            return Err(BenchError::failed(what));
        }
    }
    let needs = [
        (
            WITH_LIBNFS,
            "left out: libnfs is not installed (Debian package libnfs-dev)",
        ),
        (
            WITH_INTERFACE,
            "left out: this libnfs lacks the interface of libnfs 4",
        ),
    ];
    for (source, note) in needs {
        if !matches!(build(source, "probe", &["-lnfs"])?, Compiled::Program(_)) {
            output.note(note);
            return Ok(None);
        }
    }
    match build(SOURCE, "libnfs", &["-lnfs"])? {
        Compiled::Program(program) => Ok(Some(program)),
        Compiled::Failed(said) => Err(BenchError::failed(format!(
            "cc cannot compile the peer's program: {said}"
        ))),
        Compiled::NoCompiler => Err(BenchError::failed("cc was removed during the benchmark")),
    }
}

enum Compiled {
    Program(PathBuf),
    NoCompiler,
    /// The compiler's output.
    Failed(String),
}

fn build(
    folder: &Path,
    source: &str,
    name: &str,
    libraries: &[&str],
) -> Result<Compiled, BenchError> {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).map_err(|error| {
        BenchError::failed(format!("cannot write to {}: {error}", folder.display()))
    })?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(&file);
    match compiler.args(libraries).output() {
        Ok(done) if done.status.success() => Ok(Compiled::Program(program)),
        Ok(done) => Ok(Compiled::Failed(
            String::from_utf8_lossy(&done.stderr).trim().to_string(),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Compiled::NoCompiler),
        Err(error) => Err(BenchError::failed(format!("cannot run cc: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_its_library_is_told_by_the_exit_status() {
        let folder = tempfile::tempdir().unwrap();
        match build(folder.path(), EMPTY, "empty", &[]).unwrap() {
            Compiled::NoCompiler => eprintln!("skipped: needs cc"),
            Compiled::Failed(said) => panic!("{said}"),
            Compiled::Program(program) => {
                assert!(program.is_file());
                let missing = build(folder.path(), EMPTY, "other", &["-lno-such-library"]);
                assert!(matches!(missing.unwrap(), Compiled::Failed(_)));
                // libnfs's header needs other headers; without them, the library would seem to be missing.
                if Path::new("/usr/include/nfsc/libnfs.h").exists() {
                    let found = build(folder.path(), WITH_LIBNFS, "with", &["-lnfs"]);
                    assert!(matches!(found.unwrap(), Compiled::Program(_)));
                }
            }
        }
    }
}
