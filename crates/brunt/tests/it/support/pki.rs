//! Certificates in the layout of nbdkit, QEMU and libnbd. They are made with openssl, whose presence callers must
//! check.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Creates an authority in the folder, and certificates signed by it for a server and for a client.
pub fn certificates(folder: &Path) {
    let openssl = |words: &str| {
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).current_dir(folder);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca-key.pem -out ca-cert.pem -subj /CN=authority -days 30"
    ));
    fs::write(
        folder.join("extensions"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    for who in ["server", "client"] {
        openssl(&format!(
            "req {key} -keyout {who}-key.pem -out {who}.csr -subj /CN=localhost"
        ));
        openssl(&format!(
            "x509 -req -in {who}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 30 \
             -extfile extensions -out {who}-cert.pem"
        ));
    }
}
