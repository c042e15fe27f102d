// Package tune finds by experiment which settings suit a path. It runs transfers with the defaults
// and with other settings in turn, compares them run by run, and ranks them. Whoever calls it makes
// the transfers; the statistics and the plan are here.
package tune

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/units"
)

// Setting is one combination of options of a transfer. The zero value of each field is automatic,
// so the zero Setting is the defaults.
type Setting struct {
	Streams    int    `json:"streams,omitempty"`
	Congestion string `json:"congestion,omitempty"`
	SockBuf    Buffer `json:"sock_buf,omitzero"`
	Transport  string `json:"transport,omitempty"`
	Priority   string `json:"priority,omitempty"`
}

// Buffer is the size of socket buffers: a number of bytes, or a multiple of the path's BDP.
type Buffer struct {
	Bytes int64   `json:"bytes,omitempty"`
	BDP   float64 `json:"bdp,omitempty"`
}

// String writes the size for people.
func (b Buffer) String() string {
	switch {
	case b.BDP > 0:
		return strconv.FormatFloat(b.BDP, 'g', -1, 64) + "bdp"
	case b.Bytes > 0:
		return units.Grouped(b.Bytes) + " B"
	}
	return "auto"
}

// leastBuffer is the smallest buffer that a multiple of the BDP becomes, in bytes.
const leastBuffer = 4 << 10

// On returns the setting for a path with a BDP in bytes: its buffers have a number of bytes.
func (s Setting) On(bdp float64) Setting {
	if s.SockBuf.BDP > 0 {
		s.SockBuf = Buffer{Bytes: max(leastBuffer, int64(s.SockBuf.BDP*bdp))}
	}
	return s
}

// String names what differs from the defaults.
func (s Setting) String() string {
	var parts []string
	if s.Streams > 0 {
		parts = append(parts, units.Count(int64(s.Streams), "stream", "streams"))
	}
	for _, part := range []string{s.Congestion, s.Transport} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if s.SockBuf != (Buffer{}) {
		parts = append(parts, "buffers "+s.SockBuf.String())
	}
	if s.Priority != "" {
		parts = append(parts, "priority "+s.Priority)
	}
	if parts == nil {
		return "defaults"
	}
	return strings.Join(parts, ", ")
}

// Factors are the values to try of each option. An empty list keeps the default.
type Factors struct {
	Streams    []int
	Congestion []string
	SockBuf    []Buffer
	Transport  []string
	Priority   []string
}

// Settings returns all combinations of the factors except the defaults, each once. QUIC has no
// socket buffers and no congestion control to choose, so combinations with these are left out.
func (f *Factors) Settings() (all []Setting) {
	for _, streams := range levels(f.Streams) {
		for _, congestion := range levels(f.Congestion) {
			for _, buffer := range levels(f.SockBuf) {
				for _, transport := range levels(f.Transport) {
					for _, priority := range levels(f.Priority) {
						s := Setting{streams, congestion, buffer, transport, priority}
						onlyTCP := congestion != "" || buffer != (Buffer{})
						if s != (Setting{}) && !(onlyTCP && transport == "quic") && !slices.Contains(all, s) {
							all = append(all, s)
						}
					}
				}
			}
		}
	}
	return all
}

// levels returns the values of a factor, or the default alone.
func levels[T any](values []T) []T {
	if len(values) == 0 {
		return make([]T, 1)
	}
	return values
}

// Named reports whether any factor has values.
func (f *Factors) Named() bool {
	return len(f.Streams)+len(f.Congestion)+len(f.SockBuf)+len(f.Transport)+len(f.Priority) > 0
}
