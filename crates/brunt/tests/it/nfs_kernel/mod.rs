//! NFS tested against the Linux kernel: its server with Brunt's client, and its client, captured and replayed by
//! Brunt.
//!
//! Other tests use nfs-ganesha and Brunt's own client. Most servers and clients in the field are Linux's, which
//! behave differently. The kernel's server has directory cookies in hash order, transfers of at most 64 KiB (in a
//! small machine), a pseudo file system above its exports, exports that require ports below 1024, and delegations.
//! The kernel's client has locks, several connections, its own compounds, and the ACL protocol next to NFSv3. The
//! guest is emulated, so its times mean nothing. All tests use the same guest, because starting one takes seconds.

mod mounted;
mod served;

use std::io::Write;
use std::net::TcpListener;

use crate::nfs_server::Server;
use crate::support::guest::{Guest, ready};
use crate::support::{TempDir, busy, eventually, need};

/// Ports of the guest's services, forwarded from the loopback of the test's own namespace.
const GUEST_NFS_PORT: u16 = 2049;
const GUEST_MOUNT_PORT: u16 = 20_048;

/// Serves two folders on an ext4 file system, `open` to all ports and `reserved` to those below 1024, and then runs
/// commands that it receives from a port of the host: `serve` restarts the server, `work` and `hold` mount a folder
/// from the host and use it.
const SCRIPT: &str = r#"
set -e
printf 'sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n' >/etc/services
for transport in 'udp tpi_clts v inet udp' 'tcp tpi_cots_ord v inet tcp' 'local tpi_cots_ord - loopback -'; do
  echo "$transport - -"
done >/etc/netconfig
mkdir -p /srv /run/rpcbind /var/lib/nfs/v4recovery
echo '_rpc:x:1:1::/:/bin/sh' >>/etc/passwd
modprobe brd rd_nr=1 rd_size=131072
mkfs.ext4 -q -F /dev/ram0
mount /dev/ram0 /srv
mount -t nfsd nfsd /proc/fs/nfsd
for version in 3 4.1; do
  at=/srv/open/$version/walk
  mkdir -p $at/dir
  head -c 12345 /dev/urandom >$at/dir/file
  echo gone >$at/dir/gone
  ln -s dir/file $at/link
done
mkdir -m 777 /srv/open/names /srv/open/linux
i=0; while [ $((i += 1)) -le 300 ]; do : >/srv/open/names/n$i; done
mkdir /srv/reserved
echo '/srv/open *(rw,insecure,no_root_squash,no_subtree_check,fsid=1)
/srv/reserved *(rw,secure,no_root_squash,no_subtree_check,fsid=2)' >/etc/exports
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
rpcbind
exportfs -ra
rpc.mountd -p 20048

# Without waiting for clients that were there before: locks do, for three seconds.
echo 3 >/proc/sys/fs/nfs/nlm_timeout
echo 3 >/proc/sys/fs/nfs/nlm_grace_period
serve() {
  echo 0 >/proc/fs/nfsd/threads
  echo 'tcp 2049' >/proc/fs/nfsd/portlist
  echo 4 >/proc/fs/nfsd/threads
  echo Y >/proc/fs/nfsd/v4_end_grace
}

host() { mount -t nfs -o "proto=tcp,addr=10.0.2.2,$2" "10.0.2.2:$1" /mnt; }

# work FOLDER OPTIONS
work() {
  host "$1" "$2"
  cd /mnt
  mkdir -p a/b c
  i=0; while [ $((i += 1)) -le 20 ]; do echo "line $i" >a/f$i; done
  dd if=/dev/urandom of=a/big bs=64k count=16 2>/dev/null
  echo written $(md5sum <a/big)
  echo appended >>a/f1
  mv a/f3 a/b/g3; mv a/f4 c/f4; mv a/f13 a/f14
  ln a/f5 c/hard; ln -s ../a/f6 c/soft; cat c/soft >/dev/null
  chmod 600 a/f7; chown 1000:1000 a/f8; touch -d '2020-01-01 00:00' a/f9; truncate -s 100 a/f10
  mkfifo c/pipe
  ! rmdir a 2>/dev/null; ! cat none 2>/dev/null; ! mkdir a 2>/dev/null
  flock a/f11 -c 'echo locked >>a/f11'
  rm a/f12
  i=0; while [ $((i += 1)) -le 150 ]; do : >c/n$i; done
  echo entries $(ls -la c | wc -l)
  find . >/dev/null
  stat -f . >/dev/null
  cd /; umount /mnt
  # Again, with nothing in the caches.
  host "$1" "$2"
  ls -laR /mnt >/dev/null
  echo read $(md5sum </mnt/a/big)
  rm -r /mnt/c
  umount /mnt
}

# hold FOLDER OPTIONS: makes files in other ways, and opens two of them for reading, which the server delegates.
hold() {
  host "$1" "$2"
  fallocate -l 100000 /mnt/a/allocated
  cp /mnt/a/big /mnt/a/copy
  dd if=/dev/urandom of=/mnt/a/sparse bs=4k count=1 seek=100 2>/dev/null
  exec 3</mnt/a/big 4</mnt/a/copy
  head -c 9 <&3 >/dev/null; head -c 9 <&4 >/dev/null
}
release() { exec 3<&- 4<&-; umount /mnt; }

serve
echo serving
while :; do
  words=$(nc 10.0.2.2 ORDERS </dev/null)
  [ "$words" != end ] || break
  eval "$words"
  echo "done"
done
"#;

/// The guest, and the port from which it receives its commands.
struct KernelGuest {
    guest: Guest,
    orders: TcpListener,
}

impl KernelGuest {
    fn boot(folder: &TempDir) -> KernelGuest {
        let orders = TcpListener::bind("127.0.0.1:0").expect("a port");
        orders.set_nonblocking(true).expect("a socket");
        let port = orders.local_addr().expect("an address").port();
        let script = SCRIPT.replace("ORDERS", &port.to_string());
        let ports = format!("{GUEST_NFS_PORT} {GUEST_MOUNT_PORT}");
        let mut guest = Guest::boot_with_ports(folder, &script, &ports);
        guest.wait_for("serving");
        KernelGuest { guest, orders }
    }

    /// Gives the guest a command.
    fn order(&self, command: &str) {
        eventually("the guest asks what to do", 60, || {
            let asked = self.orders.accept();
            asked.is_ok_and(|(mut socket, _)| socket.write_all(command.as_bytes()).is_ok())
        });
    }

    /// Runs a command to its end; returns the output that followed each of these words.
    fn run<const N: usize>(&mut self, command: &str, words: [&str; N]) -> [String; N] {
        self.order(command);
        let printed = words.map(|word| self.guest.wait_for(word));
        self.guest.wait_for("done");
        printed
    }

    fn end(self) {
        self.order("end");
        self.guest.finish();
    }
}

#[test]
fn linux_serves_and_mounts() {
    let _busy = busy(); // An emulated guest keeps a core busy.
    if !ready() || need("tshark", "tshark").is_none() {
        return;
    }
    let Some(server) = Server::within("nfs_kernel::linux_serves_and_mounts") else {
        return;
    };
    let folder = TempDir::new("nfs-kernel");
    let mut guest = KernelGuest::boot(&folder);
    served::walk();
    served::mixes_of_calls_have_the_same_counts(&folder);
    served::names_are_listed_once();
    served::data_is_that_of_the_servers_file(&folder, &mut guest);
    served::ports_below_1024_are_advised();
    served::a_restart_is_survived(&mut guest);
    mounted::work_on_ganesha(&server, &folder, &mut guest);
    mounted::work_on_linux(&server, &folder, &mut guest);
    guest.end();
}
