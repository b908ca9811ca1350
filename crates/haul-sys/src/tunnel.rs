//! A network interface whose packets this program carries (TUN): what a link between two hosts is emulated with.

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::thread;

/// The most bytes of one packet with the header before it: what the kernel leaves to be cut into segments later is at most
/// 64 KiB.
pub const PACKET_BYTES_MAX: usize = (64 << 10) + 4096;

/// `struct ifreq` of `linux/if.h`: a name of 16 bytes, then a union of 24.
const REQUEST_BYTES: usize = 40;
const NAME_BYTES: usize = 16;

/// What this side can take: checksums not computed yet, and TCP not yet cut into segments.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// One end of a link: what the kernel sends into the interface is read here, and what is written here comes out of it.
/// Each packet has the kernel's `struct virtio_net_hdr` before it and may be as long as 64 KiB: TCP's segments are cut on the
/// far side, which makes one of these a hundredth of the work of many. Reads and writes never wait.
#[derive(Debug)]
pub struct Tunnel {
    device: File,
}

impl Tunnel {
    /// Makes the interface `name` in the network namespace that `namespace` is the file of (as `/run/netns/a`), or in this
    /// process's own. It ends with the value.
    ///
    /// # Errors
    /// What the system says: `EPERM` without CAP_NET_ADMIN, `ENOENT` where there is no such namespace or no TUN device,
    /// `EBUSY` where the name is taken; `EINVAL` for a name of more than 15 bytes.
    pub fn open(namespace: Option<&Path>, name: &str) -> io::Result<Tunnel> {
        let inside = namespace.map(File::open).transpose()?;
        // A namespace belongs to a thread: one that ends afterwards leaves this one where it is.
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

    /// Takes the next packet; `None` where none waits.
    ///
    /// # Errors
    /// What read(2) reports.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.device).read(packet) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a packet to the kernel.
    ///
    /// # Errors
    /// What write(2) reports; `EIO` while the interface is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.device).write(packet).map(drop)
    }
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn attach(name: &str) -> io::Result<File> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = request(name, flags)?;
    let device = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` at the pointer, which is to an array of that size in this frame;
    // the descriptor lives through the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: TUNSETOFFLOAD takes its argument by value; the descriptor lives through the call.
    let done =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(OFFLOADS)) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device.into())
}

/// `struct ifreq`: the name, ended by NUL, then the flags, a short.
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
    fn a_request_carries_name_and_flags_where_the_kernel_looks() {
        let made = request("wan0", 0x5001).expect("a name");
        assert_eq!(&made[..5], b"wan0\0");
        assert_eq!(made[16..18], 0x5001_u16.to_ne_bytes());
        for name in ["", "a/b", "a\0b", "sixteen-bytes-xx"] {
            assert!(request(name, 0).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_namespace_that_is_not_there_is_told() {
        let error =
            Tunnel::open(Some(Path::new("/no/such/namespace")), "wan0").expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
