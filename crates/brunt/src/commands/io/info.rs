//! `brunt io info` and `brunt io targets`: properties of a device or a portal. Transfers no data.

use brunt_block::attempts::Attempted;
use brunt_core::units::format_size;
use brunt_iscsi::initiator::{connect, url::InitiatorConfig};
use brunt_store::nbd::{connect as nbd, url::NbdConfig};
use serde_json::{Value, json};

use crate::cli::{Done, Failure, Output};
use crate::devices;

/// Prints the properties of a device.
pub fn info(url: &str, output: &Output) -> Done {
    let backend = devices::open_for_inspection(url)?;
    let info = backend.info();
    let yes = |value| if value { "yes" } else { "no" };
    output.line(&info.name);
    output.line(format_args!(
        "  size             {} ({} bytes)",
        format_size(info.size_bytes),
        info.size_bytes
    ));
    output.line(format_args!(
        "  logical block    {}",
        format_size(info.block_bytes.into())
    ));
    output.line(format_args!(
        "  physical block   {}",
        format_size(info.physical_block_bytes.into())
    ));
    output.line(format_args!(
        "  longest request  {}",
        format_size(info.transfer_bytes_max.into())
    ));
    output.line(format_args!("  unmap            {}", yes(info.unmap)));
    output.line(format_args!(
        "  volatile cache   {}",
        yes(info.volatile_cache)
    ));
    output.line(format_args!("  read-only        {}", yes(info.read_only)));
    for note in info.remarks() {
        output.line(format_args!("  note             {note}"));
    }
    output.object(&json!({
        "device": info.name,
        "size_bytes": info.size_bytes,
        "block_bytes": info.block_bytes,
        "physical_block_bytes": info.physical_block_bytes,
        "transfer_bytes_max": info.transfer_bytes_max,
        "unmap": info.unmap,
        "volatile_cache": info.volatile_cache,
        "read_only": info.read_only,
        "notes": info.remarks().collect::<Vec<_>>(),
    }));
    Ok(())
}

/// Prints the targets behind a portal, or the exports of an NBD server.
pub fn targets(url: &str, output: &Output) -> Done {
    if let Some(config) = NbdConfig::of_url(url) {
        return exports(&config.map_err(Failure::usage)?, output);
    }
    let address = url.strip_prefix("iscsi:").ok_or_else(|| {
        Failure::usage(format!("'{url}' is not an iSCSI or NBD URL"))
            .advise("write iscsi://host:port, nbd://host:port or nbd+unix://?socket=PATH")
    })?;
    let config = InitiatorConfig::parse(address, &mut Default::default(), &|key| {
        std::env::var(key).ok()
    })
    .map_err(Failure::usage)?;
    let Attempted {
        value: found,
        retries,
        trouble,
    } = connect::discover(&config).map_err(Failure::failed)?;
    if let Some(trouble) = &trouble {
        output.note(format_args!(
            "connection retries: {retries}, last error: {trouble}"
        ));
    }
    for target in &found {
        output.line(format_args!(
            "{}\t{}",
            target.name,
            target.addresses.join(" ")
        ));
    }
    let list: Vec<Value> = found
        .iter()
        .map(|t| json!({ "name": t.name, "addresses": t.addresses }))
        .collect();
    output.object(&json!({
        "portal": config.name(),
        "targets": list,
        "connect_retries": retries,
        "trouble": trouble.map(|trouble| trouble.to_string()),
    }));
    Ok(())
}

fn exports(config: &NbdConfig, output: &Output) -> Done {
    let found = nbd::list(config).map_err(Failure::failed)?;
    for (name, description) in &found {
        let name = if name.is_empty() {
            "(the default export)"
        } else {
            name
        };
        output.line(format_args!("{name}\t{description}"));
    }
    let list: Vec<Value> = found
        .iter()
        .map(|(name, description)| json!({ "name": name, "description": description }))
        .collect();
    output.object(&json!({ "server": config.address.to_string(), "exports": list }));
    Ok(())
}
