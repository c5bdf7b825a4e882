//! Machines, where shares are counted by address: one machine may have many.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that stands for the machine at `address` in counts of shares. One machine
/// may have many addresses: of a network for this machine itself, and of a /64 for IPv6 (RFC 6177).
pub(crate) fn machine(address: IpAddr) -> IpAddr {
    match address {
        address if address.is_loopback() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_counted_once_however_many_addresses_it_has() {
        let same = |one: &str, other: &str| machine(one.parse().unwrap()) == machine(other.parse().unwrap());
        assert!(same("127.0.0.1", "127.3.4.5") && same("127.0.0.1", "::1"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
