package stream

import "net/netip"

// Places are for connections whose peers are not known yet. One network never has more places than
// are left for all others, and one address (see PrefixOf) never more than are left for its network,
// nor more than a fixed bound. So a network alone gets half of them, two get a third each, and there
// is room for somebody from elsewhere in any case; in a network, the same holds for its addresses.
// Its methods are not safe for concurrent use.
type Places struct {
	most, mostPerAddress int
	taken                int
	addresses, networks  map[netip.Prefix]int
}

// NewPlaces returns so many places, and so many for one address.
func NewPlaces(most, perAddress int) *Places {
	return &Places{
		most: most, mostPerAddress: perAddress,
		addresses: make(map[netip.Prefix]int), networks: make(map[netip.Prefix]int),
	}
}

// Take takes a place for an address, or returns false.
func (p *Places) Take(address netip.Prefix) bool {
	network, left := networkOf(address), p.most-p.taken
	if left <= 0 || p.networks[network] > left {
		return false
	}
	// Each place that the network takes is one more of its own, and one less for others.
	leftOfNetwork := (left-p.networks[network])/2 + 1
	if p.addresses[address] >= p.mostPerAddress || p.addresses[address] > leftOfNetwork {
		return false
	}
	p.taken++
	p.addresses[address]++
	p.networks[network]++
	return true
}

// Give gives a place of an address back.
func (p *Places) Give(address netip.Prefix) {
	p.taken--
	decrease(p.addresses, address)
	decrease(p.networks, networkOf(address))
}

// Taken returns how many places are taken.
func (p *Places) Taken() int { return p.taken }

func decrease(counts map[netip.Prefix]int, key netip.Prefix) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// networkOf returns what one customer of a provider has at most, as a rule: an IPv6 /48 (RFC 6177)
// or an IPv4 /24, which is the smallest network that the Internet has routes for.
func networkOf(address netip.Prefix) netip.Prefix {
	bits := 24
	if address.Addr().Is6() {
		bits = 48
	}
	network, _ := address.Addr().Prefix(bits) // in range
	return network
}
