//! An iSCSI target: serves LUNs, and takes commands that control the layers of its devices.

use std::net::SocketAddr;

use super::Serve;
use super::kind::{Cast, Launch, PlannedRole, RoleInfo, RoleKind};

/// The iSCSI name of a target that an experiment serves itself.
pub const TARGET_NAME: &str = "iqn.2026-11.io.brunt:t0";

pub(super) const INFO: RoleInfo = RoleInfo {
    name: "target",
    help: "serves LUNs over iSCSI",
    example: "[targets.x]\nserve = [\"memory:1MiB\", \"null:1GiB\"]",
};

/// A target and its LUNs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRole {
    luns: Vec<String>,
}

/// Everything that no other role serves is a LUN.
pub(super) fn of(serve: &Serve) -> Option<Box<dyn RoleKind>> {
    Some(Box::new(TargetRole {
        luns: serve.words().to_vec(),
    }))
}

/// None, because only targets in the file request this role.
pub(super) fn unasked(_cast: &dyn Cast) -> Vec<PlannedRole> {
    Vec::new()
}

impl RoleKind for TargetRole {
    fn info(&self) -> &'static RoleInfo {
        &INFO
    }

    fn launch(&self) -> Launch {
        let mut arguments = vec![
            "target".to_string(),
            "--control".into(),
            "--name".into(),
            TARGET_NAME.into(),
        ];
        for lun in &self.luns {
            arguments.extend(["--lun".to_string(), lun.clone()]);
        }
        Launch::Process {
            arguments,
            takes_commands: true,
        }
    }

    fn luns(&self) -> Option<&[String]> {
        Some(&self.luns)
    }

    fn login_option(&self) -> Option<&'static str> {
        Some("--chap")
    }

    fn url(&self, at: SocketAddr, lun: u16) -> Option<String> {
        Some(format!("iscsi://{at}/{TARGET_NAME}/{lun}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target's settings become the command line that a user would write.
    #[test]
    fn settings_become_the_targets_command_line() {
        let check = |serve: Serve, words: &str| {
            let Launch::Process { arguments, .. } = of(&serve).unwrap().launch() else {
                panic!("{serve:?}")
            };
            assert_eq!(arguments.join(" "), words);
        };
        check(
            Serve::One("null:1T".into()),
            &format!("target --control --name {TARGET_NAME} --lun null:1T"),
        );
        check(
            Serve::Luns(vec!["a,ro".into(), "tcp".into()]),
            &format!("target --control --name {TARGET_NAME} --lun a,ro --lun tcp"),
        );
    }
}
