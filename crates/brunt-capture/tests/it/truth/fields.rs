//! An operation's fields, printed as tshark prints them.

use brunt_capture::Operation;
use brunt_wire::nfs::{FileHandle, v3};

use super::Fields;

#[derive(Default)]
struct Printed(Fields);

impl Printed {
    fn add(&mut self, name: &'static str, value: impl ToString) {
        let text = self.0.entry(name).or_default();
        if !text.is_empty() {
            text.push('|');
        }
        text.push_str(&value.to_string());
    }
    fn text(&mut self, name: &'static str, value: &[u8]) {
        self.add(name, String::from_utf8_lossy(value));
    }
    fn handle(&mut self, handle: FileHandle<'_>) {
        self.add("nfs.fh.length", handle.0.len());
    }
    fn place(&mut self, place: &v3::DirOp<'_>) {
        self.handle(place.dir);
        self.text("nfs.name", place.name);
    }
    fn set(&mut self, set: &v3::SetAttributes<'_>) {
        if let Some(size) = set.size {
            self.add("nfs.set_size", size);
        }
    }
    fn attributes(&mut self, attributes: Option<&v3::Attributes>) {
        if let Some(a) = attributes {
            self.add("nfs.fattr3.type", a.file_type);
            self.add("nfs.fattr3.nlink", a.nlink);
            self.add("nfs.fattr3.size", a.size);
            self.add("nfs.fattr3.used", a.used);
            self.add("nfs.fattr3.fileid", a.fileid);
        }
    }
    fn wcc(&mut self, wcc: &v3::Wcc<'_>) {
        if let Some(before) = wcc.before {
            self.add("nfs.wcc_attr.size", before.size);
        }
        self.attributes(wcc.after);
    }
}

// Long because it has an arm for each of the 22 procedures.
pub fn of_call(operation: &Operation<'_>, procedure: v3::Procedure, args: &v3::Args<'_>) -> Fields {
    let mut p = Printed::default();
    p.add("nfs.procedure_v3", procedure as u32);
    if let Some(sys) = operation.rpc().and_then(|rpc| rpc.call.credentials.sys()) {
        p.text("rpc.auth.machinename", sys.machine_name);
    }
    match args {
        v3::Args::Null => {}
        v3::Args::Getattr { object }
        | v3::Args::Access { object, .. }
        | v3::Args::Pathconf { object } => {
            p.handle(*object);
        }
        v3::Args::Setattr {
            object, attributes, ..
        } => {
            p.handle(*object);
            p.set(attributes);
        }
        v3::Args::Lookup { what } => p.place(what),
        v3::Args::Readlink { symlink } => p.handle(*symlink),
        v3::Args::Read {
            file,
            offset,
            count,
        }
        | v3::Args::Commit {
            file,
            offset,
            count,
        } => {
            p.handle(*file);
            p.add("nfs.offset3", offset);
            p.add("nfs.count3", count);
        }
        v3::Args::Write {
            file,
            offset,
            count,
            stable,
            ..
        } => {
            p.handle(*file);
            p.add("nfs.offset3", offset);
            p.add("nfs.count3", count);
            p.add("nfs.write.stable", *stable as u32);
        }
        v3::Args::Create { place, how } => {
            p.place(place);
            if let v3::CreateHow::Unchecked(set) | v3::CreateHow::Guarded(set) = how {
                p.set(set);
            }
        }
        v3::Args::Mkdir { place, attributes } => {
            p.place(place);
            p.set(attributes);
        }
        v3::Args::Symlink {
            place,
            attributes,
            target,
        } => {
            p.place(place);
            p.set(attributes);
            p.text("nfs.symlink.to", target);
        }
        v3::Args::Mknod { place, what } => {
            p.place(place);
            if let v3::NodeKind::Device(_, set, _) | v3::NodeKind::Pipe(_, set) = what {
                p.set(set);
            }
        }
        v3::Args::Remove { object } | v3::Args::Rmdir { object } => p.place(object),
        v3::Args::Rename { from, to } => {
            p.place(from);
            p.place(to);
        }
        v3::Args::Link { file, link } => {
            p.handle(*file);
            p.place(link);
        }
        v3::Args::Readdir {
            dir, cookie, count, ..
        } => {
            p.handle(*dir);
            p.add("nfs.cookie3", cookie);
            p.add("nfs.count3", count);
        }
        v3::Args::Readdirplus {
            dir,
            cookie,
            dir_count,
            max_count,
            ..
        } => {
            p.handle(*dir);
            p.add("nfs.cookie3", cookie);
            p.add("nfs.count3_dircount", dir_count);
            p.add("nfs.count3_maxcount", max_count);
        }
        v3::Args::Fsstat { root } | v3::Args::Fsinfo { root } => p.handle(*root),
    }
    p.0
}

pub fn of_reply(procedure: v3::Procedure, results: &v3::Results<'_>) -> Fields {
    use v3::ResultBody::*;
    let mut p = Printed::default();
    if procedure != v3::Procedure::Null {
        p.add("nfs.status3", results.status.0);
    }
    match &results.body {
        Empty => {}
        Failed { attributes, wcc } => {
            p.attributes(*attributes);
            wcc.iter().for_each(|wcc| p.wcc(wcc));
        }
        Getattr { attributes } => p.attributes(Some(attributes)),
        Changed { wcc } | Commit { wcc, .. } => p.wcc(wcc),
        Lookup {
            attributes, dir, ..
        } => {
            p.attributes(*attributes);
            p.attributes(*dir);
        }
        Access { attributes, .. } | Readlink { attributes, .. } => p.attributes(*attributes),
        Read {
            attributes, eof, ..
        } => {
            p.attributes(*attributes);
            p.add("nfs.read.eof", u32::from(*eof));
        }
        Write { wcc, committed, .. } => {
            p.wcc(wcc);
            p.add("nfs.write.committed", *committed as u32);
        }
        Created {
            attributes, dir, ..
        }
        | Link { attributes, dir } => {
            p.attributes(*attributes);
            p.wcc(dir);
        }
        Rename { from, to } => {
            p.wcc(from);
            p.wcc(to);
        }
        Readdir {
            dir, entries, eof, ..
        } => {
            p.attributes(*dir);
            entries
                .iter()
                .for_each(|entry| p.attributes(entry.attributes));
            p.add("nfs.readdir.eof", u32::from(*eof));
        }
        Fsstat {
            attributes,
            total_bytes,
            ..
        } => {
            p.attributes(*attributes);
            p.add("nfs.fsstat3_resok.tbytes", total_bytes);
        }
        Fsinfo {
            attributes,
            read_max,
            file_size_max,
            ..
        } => {
            p.attributes(*attributes);
            p.add("nfs.fsinfo.rtmax", read_max);
            p.add("nfs.fsinfo.maxfilesize", file_size_max);
        }
        Pathconf {
            attributes,
            name_max,
            ..
        } => {
            p.attributes(*attributes);
            p.add("nfs.pathconf.name_max", name_max);
        }
    }
    p.0
}
