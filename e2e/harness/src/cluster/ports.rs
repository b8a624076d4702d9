//! Ports that nobody else can take between choosing and using them.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
};

use anyhow::{Context as _, Result};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A port that stays bound, without listening, for as long as this lives. The server shares it (`SO_REUSEPORT`, which etcd and
/// Kubernetes offer as flags), also after a restart; the kernel gives it to nobody else in the meantime.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    pub(super) fn reserve() -> Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address =
            SocketAddr::try_from(getsockname(&socket)?).context("reading the reserved port")?;
        Ok(Self {
            number: address.port(),
            _reservation: socket,
        })
    }

    pub(super) const fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::TcpListener};

    use super::*;

    #[test]
    fn reserved_ports_are_distinct_and_refused_to_others() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).is_err());
    }
}
