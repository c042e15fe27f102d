package doctor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Routes are kept as the kernel's own messages, so that undo restores exactly what was there,
// including attributes that this program does not know. In canonical form, equal routes are equal
// bytes.

// From linux/netlink.h and linux/rtnetlink.h.
const (
	attrKind    = 1<<14 - 1 // NLA_TYPE_MASK
	attrNextHop = 30        // RTA_NH_ID
)

// attr is an attribute of a netlink message.
type attr struct {
	kind  uint16
	value []byte
}

// metricNames are ip's names of metrics, by number (RTAX_* of linux/rtnetlink.h).
var metricNames = [...]string{
	2: "mtu", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd", 8: "advmss", 9: "reordering", 10: "hoplimit", 11: "initcwnd",
	12: "features", 13: "rto_min", 14: "initrwnd", 15: "quickack", 16: "congctl", 17: "fastopen_no_cookie",
}

var protocolNames = map[byte]string{2: "kernel", 3: "", 4: "static", 9: "ra", 11: "zebra", 12: "bird", 16: "dhcp"}

// parseAttrs splits what follows the head of a message. The values alias b.
func parseAttrs(b []byte) ([]attr, error) {
	var out []attr
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return nil, errors.New("a netlink attribute is cut short")
		}
		out = append(out, attr{binary.NativeEndian.Uint16(b[2:]) & attrKind, b[unix.SizeofRtAttr:n]})
		b = b[min((n+3)&^3, len(b)):]
	}
	return out, nil
}

func encodeAttrs(out []byte, attrs []attr) []byte {
	for _, a := range attrs {
		out = binary.NativeEndian.AppendUint16(out, uint16(unix.SizeofRtAttr+len(a.value)))
		out = binary.NativeEndian.AppendUint16(out, a.kind)
		out = append(out, a.value...)
		out = append(out, make([]byte, -len(a.value)&3)...)
	}
	return out
}

// find returns the value of an attribute, or nil if it is missing.
func find(attrs []attr, kind uint16) []byte {
	for _, a := range attrs {
		if a.kind == kind {
			return a.value
		}
	}
	return nil
}

// word returns the value of a numeric attribute, or 0.
func word(attrs []attr, kind uint16) uint32 {
	if v := find(attrs, kind); len(v) == 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}

// routeFlags are the flags that belong to a route. The others are its state.
const routeFlags = unix.RTNH_F_ONLINK

// splitRoute returns the head (struct rtmsg) and the attributes of a message.
func splitRoute(raw []byte) (head []byte, attrs []attr, err error) {
	if len(raw) < unix.SizeofRtMsg {
		return nil, nil, errors.New("a route's netlink message is cut short")
	}
	attrs, err = parseAttrs(raw[unix.SizeofRtMsg:])
	return raw[:unix.SizeofRtMsg], attrs, err
}

// canonical returns the form of a message that is stored and sent: attributes in order, without
// the route's state.
func canonical(raw []byte) ([]byte, error) {
	head, attrs, err := splitRoute(raw)
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(head)
	binary.NativeEndian.PutUint32(out[8:], binary.NativeEndian.Uint32(out[8:])&routeFlags)
	attrs = slices.DeleteFunc(attrs, func(a attr) bool { return a.kind == unix.RTA_CACHEINFO })
	for i, a := range attrs {
		if a.kind != unix.RTA_METRICS {
			continue
		}
		metrics, err := parseAttrs(a.value)
		if err != nil {
			return nil, err
		}
		sortAttrs(metrics)
		attrs[i].value = encodeAttrs(nil, metrics)
	}
	sortAttrs(attrs)
	return encodeAttrs(out, attrs), nil
}

func sortAttrs(attrs []attr) {
	slices.SortStableFunc(attrs, func(a, b attr) int { return int(a.kind) - int(b.kind) })
}

// withMetrics returns a canonical message with the given numeric metrics set.
func withMetrics(raw []byte, set []Metric) ([]byte, error) {
	head, attrs, err := splitRoute(raw)
	if err != nil {
		return nil, err
	}
	metrics, err := parseAttrs(find(attrs, unix.RTA_METRICS))
	if err != nil {
		return nil, err
	}
	for _, m := range set {
		kind := slices.Index(metricNames[:], m.Name)
		n, err := strconv.ParseUint(m.Value, 10, 32)
		if kind < 0 || err != nil {
			return nil, fmt.Errorf("%s %s is not a metric of a route", m.Name, m.Value)
		}
		metrics = slices.DeleteFunc(metrics, func(a attr) bool { return int(a.kind) == kind })
		metrics = append(metrics, attr{uint16(kind), binary.NativeEndian.AppendUint32(nil, uint32(n))})
	}
	sortAttrs(metrics)
	attrs = slices.DeleteFunc(attrs, func(a attr) bool { return a.kind == unix.RTA_METRICS })
	attrs = append(attrs, attr{unix.RTA_METRICS, encodeAttrs(nil, metrics)})
	sortAttrs(attrs)
	return encodeAttrs(bytes.Clone(head), attrs), nil
}

// sameRoute reports whether two canonical messages are versions of one route, so that
// RTM_NEWROUTE with NLM_F_REPLACE replaces one with the other.
func sameRoute(a, b []byte) bool {
	x, xs, err1 := splitRoute(a)
	y, ys, err2 := splitRoute(b)
	if err1 != nil || err2 != nil {
		return false
	}
	const family, tos, table = 0, 3, 4
	return x[family] == y[family] && x[dstLen] == y[dstLen] && bytes.Equal(find(xs, unix.RTA_DST), find(ys, unix.RTA_DST)) &&
		x[tos] == y[tos] && x[table] == y[table] &&
		word(xs, unix.RTA_TABLE) == word(ys, unix.RTA_TABLE) && word(xs, unix.RTA_PRIORITY) == word(ys, unix.RTA_PRIORITY)
}

// dstLen is the place of the destination's prefix length in struct rtmsg.
const dstLen = 1

// maxRoutes limits the routes that are examined, besides default routes: a router may have a million.
const maxRoutes = 64

// far reports whether a route leads through a gateway.
func far(attrs []attr) bool {
	return find(attrs, unix.RTA_GATEWAY) != nil || find(attrs, unix.RTA_VIA) != nil || find(attrs, unix.RTA_MULTIPATH) != nil || find(attrs, attrNextHop) != nil
}

// routes lists the routes in the main table that lead to far hosts, or that have metrics.
func (linuxSystem) routes() ([]Route, error) {
	var out []Route
	others := 0
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
		req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
		messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
		switch {
		case errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP):
			continue
		case err != nil && !errors.Is(err, netlink.ErrDumpInterrupted):
			return nil, fmt.Errorf("list the routes: %w", err)
		}
		for _, raw := range messages {
			head, attrs, err := splitRoute(raw)
			if err != nil {
				return nil, err
			}
			const srcLen, kind, flags = 2, 7, 8
			near := head[dstLen] != 0 && !far(attrs)
			if near && len(find(attrs, unix.RTA_METRICS)) == 0 || head[dstLen] != 0 && others == maxRoutes {
				continue
			}
			if head[0] != family || head[srcLen] != 0 || head[kind] != unix.RTN_UNICAST ||
				word(attrs, unix.RTA_TABLE) != unix.RT_TABLE_MAIN || binary.NativeEndian.Uint32(head[flags:])&unix.RTM_F_CLONED != 0 {
				continue
			}
			fixed := fixedBecause(head, attrs)
			if raw, err = canonical(raw); err != nil {
				return nil, err
			}
			r, err := describeRoute(raw)
			if err != nil {
				return nil, err
			}
			r.Fixed, r.Near = fixed, near
			if out = append(out, *r); head[dstLen] != 0 {
				others++
			}
		}
	}
	may := mayChangeRoutes()
	for i := range out {
		if !may {
			out[i].Fixed = "root may not change routes in this container: run the command on its host, or there give it CAP_NET_ADMIN"
		}
		for j := range out {
			if i != j && sameRoute(out[i].raw, out[j].raw) {
				out[i].Fixed = "there are several routes of the same metric, of which the kernel would replace the first"
			}
		}
	}
	return out, nil
}

// mayChangeRoutes reports whether root has the capability to change routes. A user without it may
// get it through sudo.
func mayChangeRoutes() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Geteuid() != 0 || unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

// fixedBecause says why a route can't be changed and restored exactly, or "".
func fixedBecause(head []byte, attrs []attr) string {
	const protocol = 5
	info := find(attrs, unix.RTA_CACHEINFO) // struct rta_cacheinfo: the third word is the expiry
	if len(info) >= 12 && binary.NativeEndian.Uint32(info[8:]) != 0 || head[protocol] == unix.RTPROT_RA {
		return "it comes from router advertisements and expires: set it in what handles those"
	}
	for _, a := range attrs {
		switch a.kind {
		case unix.RTA_DST, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_PREFSRC, unix.RTA_PRIORITY, unix.RTA_METRICS, unix.RTA_TABLE, unix.RTA_PREF,
			unix.RTA_CACHEINFO, unix.RTA_VIA, unix.RTA_FLOW:
		case unix.RTA_MULTIPATH:
			return "it has several next hops: set each by hand"
		case attrNextHop:
			return "its next hop is an object of its own: set it by hand"
		default:
			return fmt.Sprintf("it has an attribute that is not known here (%d): set it by hand", a.kind)
		}
	}
	return ""
}

// describeRoute returns a canonical message in the syntax of ip route.
func describeRoute(raw []byte) (*Route, error) {
	head, attrs, err := splitRoute(raw)
	if err != nil {
		return nil, err
	}
	r := &Route{Family: 4, raw: raw}
	if head[0] == unix.AF_INET6 {
		r.Family = 6
	}
	words := []string{"default"}
	if dst, ok := netip.AddrFromSlice(find(attrs, unix.RTA_DST)); ok {
		words[0] = netip.PrefixFrom(dst, int(head[dstLen])).String()
	}
	r.dst = words[0]
	add := func(w ...string) { words = append(words, w...) }
	if tos := head[3]; tos != 0 {
		r.tos = true
		add("tos", fmt.Sprintf("%#x", tos))
	}
	gateway, ok := netip.AddrFromSlice(find(attrs, unix.RTA_GATEWAY))
	via := find(attrs, unix.RTA_VIA)
	switch {
	case ok:
		add("via", gateway.String())
	case len(via) == 18:
		addr, _ := netip.AddrFromSlice(via[2:])
		add("via", "inet6", addr.String())
	}
	if index := word(attrs, unix.RTA_OIF); index != 0 {
		r.Device = strconv.Itoa(int(index))
		if link, err := net.InterfaceByIndex(int(index)); err == nil {
			r.Device = link.Name
		}
		add("dev", r.Device)
	}
	if r.protocol, ok = protocolNames[head[5]]; !ok {
		r.protocol = strconv.Itoa(int(head[5]))
	}
	if r.protocol != "" {
		add("proto", r.protocol)
	}
	if head[6] == unix.RT_SCOPE_LINK {
		add("scope", "link")
	}
	if src, ok := netip.AddrFromSlice(find(attrs, unix.RTA_PREFSRC)); ok {
		add("src", src.String())
	}
	if r.priority = word(attrs, unix.RTA_PRIORITY); r.priority != 0 {
		add("metric", strconv.Itoa(int(r.priority)))
	}
	if binary.NativeEndian.Uint32(head[8:])&unix.RTNH_F_ONLINK != 0 {
		add("onlink")
	}
	if pref := find(attrs, unix.RTA_PREF); len(pref) == 1 {
		if name := map[byte]string{1: "high", 3: "low"}[pref[0]]; name != "" {
			add("pref", name)
		}
	}
	r.Spec = strings.Join(words, " ")
	metrics, err := parseAttrs(find(attrs, unix.RTA_METRICS))
	if err != nil {
		return nil, err
	}
	locks := word(metrics, unix.RTAX_LOCK)
	for _, m := range metrics {
		if int(m.kind) < len(metricNames) && metricNames[m.kind] != "" {
			r.Metrics = append(r.Metrics, Metric{metricNames[m.kind], metricText(m), locks&(1<<m.kind) != 0})
		}
	}
	return r, nil
}

// metricText formats the value of a metric like ip: see print_rta_metrics in iproute2.
func metricText(m attr) string {
	if m.kind == unix.RTAX_CC_ALGO {
		return string(bytes.TrimRight(m.value, "\x00"))
	}
	n := word([]attr{m}, m.kind)
	switch m.kind {
	case unix.RTAX_RTT:
		return fmt.Sprintf("%dms", n/8)
	case unix.RTAX_RTTVAR:
		return fmt.Sprintf("%dms", n/4)
	case unix.RTAX_RTO_MIN:
		return fmt.Sprintf("%dms", n)
	case unix.RTAX_FEATURES:
		if n == unix.RTAX_FEATURE_ECN {
			return "ecn"
		}
	}
	return strconv.FormatUint(uint64(n), 10)
}

// rawMessage is the body of a netlink message.
type rawMessage []byte

func (m rawMessage) Len() int          { return len(m) }
func (m rawMessage) Serialize() []byte { return m }

func (linuxSystem) replaceRoute(raw []byte) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(rawMessage(raw))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
