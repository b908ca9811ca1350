//! A network interface whose packets this program carries (TUN), for the emulation of a link
//! between two hosts.

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::thread;

/// Maximum size of a packet with its header, in bytes. The kernel passes at most 64 KiB to be
/// segmented later.
pub const PACKET_BYTES_MAX: usize = (64 << 10) + 4096;

/// `struct ifreq` of `linux/if.h`: a name of 16 bytes, then a union of 24.
const REQUEST_BYTES: usize = 40;
const NAME_BYTES: usize = 16;

/// Offloads that this side accepts: checksums not computed yet, and TCP not segmented yet.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// UDP not segmented yet (UDP_SEGMENT). Kernels before Linux 6.2 refuse both flags.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// One end of a link. Reads return the packets that the kernel sends through the interface, and
/// writes deliver packets to the kernel.
///
/// Each packet follows the kernel's `struct virtio_net_hdr` and may have up to 64 KiB. The kernel
/// segments TCP data, and since Linux 6.2 UDP data, at the far end. A large packet is much less
/// work than many small ones.
/// Reads and writes never block.
#[derive(Debug)]
pub struct Tunnel {
    device: File,
}

impl Tunnel {
    /// Creates the interface `name` in the network namespace of the file `namespace` (for example
    /// `/run/netns/a`), or in the namespace of this process. Dropping the value removes the
    /// interface.
    ///
    /// # Errors
    ///
    /// Returns the error of the system: `EPERM` without CAP_NET_ADMIN, `ENOENT` if there is no such
    /// namespace or no TUN device, `EBUSY` if the name exists. Returns
    /// [`io::ErrorKind::InvalidInput`] if the name is empty, has more than 15 bytes, or contains
    /// NUL or `/`.
    pub fn open(namespace: Option<&Path>, name: &str) -> io::Result<Tunnel> {
        let inside = namespace.map(File::open).transpose()?;
        // Each thread has its own namespace: a thread that ends after the call leaves the caller's
        // unchanged.
        let made = thread::scope(|scope| {
            let maker = scope.spawn(|| {
                if let Some(inside) = &inside {
                    rustix::thread::move_into_link_name_space(inside.as_fd(), None)?;
                }
                attach(name)
            });
            maker.join()
        });
        let device = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Tunnel { device })
    }

    /// Reads the next packet into `packet`. Returns its length, or `None` if no packet is waiting.
    ///
    /// # Errors
    ///
    /// Returns the errors of read(2).
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.device).read(packet) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Delivers a packet to the kernel.
    ///
    /// # Errors
    ///
    /// Returns the errors of write(2); `EIO` while the interface is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.device).write(packet).map(drop)
    }
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Gives the calling thread priority over all ordinary threads (SCHED_FIFO, priority 20). A thread
/// that carries packets must run when they are due.
///
/// # Errors
///
/// Returns the error of the system: `EPERM` without CAP_SYS_NICE.
pub fn prioritize_thread() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 20 };
    // SAFETY: the call reads one `sched_param` through the pointer to a local value; 0 is the
    // calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn attach(name: &str) -> io::Result<File> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = request(name, flags)?;
    let device = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` through the pointer to a local array of
    // that size; the descriptor outlives the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let offer = |offloads: libc::c_uint| {
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: TUNSETOFFLOAD takes its argument by value; the descriptor outlives the call.
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) == 0 }
    };
    if !offer(OFFLOADS | UDP_OFFLOADS) && !offer(OFFLOADS) {
        return Err(io::Error::last_os_error());
    }
    Ok(device.into())
}

/// Returns a `struct ifreq`: the NUL-terminated name, then the flags, a short.
fn request(name: &str, flags: libc::c_int) -> io::Result<[u8; REQUEST_BYTES]> {
    let is_fit = (1..NAME_BYTES).contains(&name.len()) && !name.bytes().any(|byte| byte == 0 || byte == b'/');
    if !is_fit {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = [0; REQUEST_BYTES];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = u16::try_from(flags).map_err(|_| io::ErrorKind::InvalidInput)?;
    request[NAME_BYTES..NAME_BYTES + 2].copy_from_slice(&flags.to_ne_bytes());
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_name_and_flags_at_the_kernel_offsets() {
        let made = request("wan0", 0x5001).expect("a name");
        assert_eq!(&made[..5], b"wan0\0");
        assert_eq!(made[16..18], 0x5001_u16.to_ne_bytes());
        for name in ["", "a/b", "a\0b", "sixteen-bytes-xx"] {
            assert!(request(name, 0).is_err(), "{name:?}");
        }
    }

    #[test]
    fn missing_namespace_returns_not_found() {
        let error =
            Tunnel::open(Some(Path::new("/no/such/namespace")), "wan0").expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
