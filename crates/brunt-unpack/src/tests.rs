use std::io::{ErrorKind, Write};

use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut encoder =
        lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    unpacked(Box::new(Cursor::new(bytes)))?.read_to_end(&mut text)?;
    Ok(text)
}

#[test]
fn compression_does_not_change_the_content() {
    let text: Vec<u8> = (0..200_000u32)
        .flat_map(|number| (number / 3).to_le_bytes())
        .collect();
    assert_eq!(read(text.clone()).unwrap(), text);
    for packed in [
        gzip(&text),
        zstd::encode_all(text.as_slice(), 1).unwrap(),
        xz(&text),
    ] {
        assert!(packed.len() < text.len());
        assert_eq!(read(packed.clone()).unwrap(), text);
        let twice = [packed.clone(), packed].concat();
        assert_eq!(read(twice).unwrap(), [text.clone(), text.clone()].concat());
    }
}

/// Text that compresses poorly and so fills many blocks and chunks.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    (0..bytes).map(|_| next()).collect()
}

/// A file truncated in the middle yields nearly half of its contents, for any read size, and then the error.
#[test]
fn data_before_a_cut_is_read() {
    let text = noise(4 << 20);
    for (packed, least) in [
        (gzip(&text), 0.49),
        // A zstd block is 128 KiB.
        (zstd::encode_all(text.as_slice(), 1).unwrap(), 0.46),
        (xz(&text), 0.49),
    ] {
        for piece in [1 << 10, 1 << 20] {
            let mut reader =
                unpacked(Box::new(Cursor::new(packed[..packed.len() / 2].to_vec()))).unwrap();
            let (mut read, mut into) = (Vec::new(), vec![0; piece]);
            let error = loop {
                match reader.read(&mut into) {
                    Ok(0) => panic!("a cut file ends without an error"),
                    Ok(count) => read.extend_from_slice(&into[..count]),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            assert!(text.starts_with(&read));
            let share = read.len() as f64 / text.len() as f64;
            assert!(share > least, "{:x?}: {share}", &packed[..4]);
        }
    }
}

/// `xz --x86 --delta --lzma2` is supported.
#[test]
fn filters_of_xz_are_undone() {
    let mut options = lzma_rust2::XzOptions::with_preset(1);
    options.prepend_pre_filter(lzma_rust2::filter::FilterType::Delta, 4);
    options.prepend_pre_filter(lzma_rust2::filter::FilterType::BcjX86, 0);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(&[9; 5000]).unwrap();
    assert_eq!(read(encoder.finish().unwrap()).unwrap(), [9; 5000]);
}

#[test]
fn a_truncated_compressed_file_is_an_error() {
    for packed in [
        gzip(&[7; 5000]),
        zstd::encode_all(&[7; 5000][..], 1).unwrap(),
        xz(&[7; 5000]),
    ] {
        let cut = packed[..packed.len() - 5].to_vec();
        assert!(read(cut).is_err());
    }
    for short in [&b""[..], b"x", b"\xfd7zXZ"] {
        assert_eq!(read(short.to_vec()).unwrap(), short);
    }
}

/// Compresses with an installed program; prints a notice and returns `None` if the program is missing.
fn packed_by(command: &str, folder: &std::path::Path, out: &str) -> Option<Vec<u8>> {
    let ran = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .output()
        .unwrap();
    if ran.status.code() == Some(127) {
        println!("skipped: {command}");
        return None;
    }
    assert!(ran.status.success(), "{command}: {ran:?}");
    Some(std::fs::read(folder.join(out)).unwrap())
}

/// Files compressed by the usual programs, with their options, unpack to the original contents.
#[test]
fn files_of_the_usual_programs_are_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let text = noise(3 << 20);
    std::fs::write(folder.path().join("t"), &text).unwrap();
    for (command, out) in [
        ("gzip -c t > t.gz", "t.gz"),
        ("gzip -c t > t.gz && head -c 5000 /dev/zero >> t.gz", "t.gz"),
        ("bzip2 -c t > t.bz2", "t.bz2"),
        ("lz4 -c t > t.lz4", "t.lz4"),
        ("zstd -q -c --long=31 --ultra -20 t > t.zst", "t.zst"),
        (
            "printf '\\120\\052\\115\\030\\004\\000\\000\\000skip' > t.zst && zstd -q -c t >> t.zst",
            "t.zst",
        ),
    ] {
        if let Some(packed) = packed_by(command, folder.path(), out) {
            assert!(read(packed.clone()).unwrap() == text, "{command}");
            if !command.contains("zero") {
                let twice = [packed.clone(), packed].concat();
                assert!(
                    read(twice).unwrap() == [&text[..], &text].concat(),
                    "{command}"
                );
            }
        }
    }
    let gzip = packed_by(
        "gzip -c t > t.gz && printf garbage >> t.gz",
        folder.path(),
        "t.gz",
    );
    if let Some(packed) = gzip {
        let error = read(packed).unwrap_err();
        assert_eq!(
            UnpackError::of(&error),
            Some(&UnpackError::Trailing { packing: "gzip" })
        );
    }
}

/// Names and contents of all files in an archive.
fn members(bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let Contents::Archive(mut archive) = contents(Box::new(Cursor::new(bytes))).unwrap() else {
        panic!("no archive");
    };
    let mut all = Vec::new();
    while let Some(mut member) = archive.next_member().unwrap() {
        let mut read = Vec::new();
        member.bytes.read_to_end(&mut read).unwrap();
        all.push((member.name, read));
    }
    all
}

#[test]
fn files_in_archives_are_read_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("d/{}", "n".repeat(150));
    let files = [
        ("a", noise(700)),
        ("b", Vec::new()),
        (long.as_str(), noise(100_000)),
        ("z", b"last\n".to_vec()),
    ];
    std::fs::create_dir(folder.path().join("d")).unwrap();
    for (name, bytes) in &files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let expected: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.to_string(), bytes.clone()))
        .collect();
    for command in [
        "tar -cf x a b d z",
        "tar --format=v7 --exclude='d/*' -cf x a b z; tar --format=gnu -cf x a b d z",
        "tar --format=pax -cf x a b d z",
        "tar --format=posix -czf x a b d z",
        "tar -cf - a b d z | zstd -q -c > x",
        "rm -f x; zip -q -r x.zip a b d z && mv x.zip x",
        "rm -f x; zip -q -0 -r x.zip a b d z && mv x.zip x",
        "rm -f x; zip -q -r - a b d z | cat > x",
        "rm -f x; zip -q -fz -r x.zip a b d z && mv x.zip x",
    ] {
        if let Some(bytes) = packed_by(command, folder.path(), "x") {
            assert!(members(bytes.clone()) == expected, "{command}");
            let error = unpacked(Box::new(Cursor::new(bytes))).err().unwrap();
            assert!(
                matches!(UnpackError::of(&error), Some(UnpackError::Archive { .. })),
                "{error}"
            );
        }
    }
}

/// A corrupted byte in a zip archive is detected, and unsupported members are rejected by name.
#[test]
fn damaged_and_foreign_members_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), noise(50_000)).unwrap();
    if let Some(mut bytes) = packed_by("zip -q -0 x.zip a", folder.path(), "x.zip") {
        bytes[1000] ^= 1;
        let Contents::Archive(mut archive) = contents(Box::new(Cursor::new(bytes))).unwrap() else {
            panic!("no archive");
        };
        let mut member = archive.next_member().unwrap().unwrap();
        let error = io::copy(&mut member.bytes, &mut io::sink()).unwrap_err();
        assert!(
            matches!(UnpackError::of(&error), Some(UnpackError::Checksum { .. })),
            "{error}"
        );
    }
    if let Some(bytes) = packed_by("zip -q -P secret y.zip a", folder.path(), "y.zip") {
        let Contents::Archive(mut archive) = contents(Box::new(Cursor::new(bytes))).unwrap() else {
            panic!("no archive");
        };
        let error = archive.next_member().err().unwrap();
        let member = UnpackError::Member {
            member: "a".into(),
            what: "encrypted",
        };
        assert_eq!(UnpackError::of(&error), Some(&member));
    }
}

#[test]
fn unsupported_formats_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), noise(50_000)).unwrap();
    for (command, out, name) in [
        ("xz --format=lzma -c a > x", "x", "lzma"),
        ("lz4 -l -c a > x", "x", "lz4"),
        ("lzip -c a > x", "x", "lzip"),
        ("lzop -c a > x", "x", "lzop"),
    ] {
        if let Some(bytes) = packed_by(command, folder.path(), out) {
            let error = read(bytes).unwrap_err();
            let found = UnpackError::of(&error);
            assert!(
                matches!(found, Some(UnpackError::Packing { packing }) if packing.starts_with(name)),
                "{command}: {error}"
            );
        }
    }
}
