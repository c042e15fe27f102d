package path

import (
	"fmt"
	"io"
	"slices"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// sheet is a table of a whole matrix of requests: a row for each way to write them.
type sheet struct {
	Title   string
	Columns []string
	Rows    [][]string // the way, then a figure for each column
}

// detailed is the size whose figures a sheet has in detail. It is the smallest one that takes two
// segments.
const detailed = 2 << 10

// whole reports whether a probe measured requests in all ways.
func whole(r *fxfer.ProbeReport) bool {
	return slices.ContainsFunc(r.Exchanges, func(l probe.Latency) bool { return l.PerConnection == probe.PerConnection[1] })
}

// sheets are the tables of a whole matrix: two for each kind of connection.
func sheets(r *fxfer.ProbeReport) (all []sheet) {
	for _, tls := range []bool{false, true} {
		for _, n := range probe.PerConnection {
			if !slices.ContainsFunc(r.Exchanges, func(l probe.Latency) bool { return l.TLS == tls && l.PerConnection == n }) {
				continue
			}
			kind := kindOf(tls, n)
			medians := sheet{Title: kind + ": median"}
			for _, size := range probe.Sizes {
				medians.Columns = append(medians.Columns, fmt.Sprintf("%d KiB", size>>10))
			}
			details := sheet{Title: kind + ": 2 KiB", Columns: []string{"median", "99 %", "a second", "connect", "send", "wait"}}
			for _, way := range probe.Ways() {
				way.TLS, way.PerConnection = tls, n
				cells := []string{wayOf(&way)}
				for _, size := range probe.Sizes {
					way.Size = size
					cells = append(cells, median(r.Exchanges, &way))
				}
				medians.Rows = append(medians.Rows, cells)
				way.Size = detailed
				details.Rows = append(details.Rows, append([]string{wayOf(&way)}, detailsOf(cellOf(r.Exchanges, &way))...))
			}
			all = append(all, medians, details)
		}
	}
	return all
}

func kindOf(tls bool, perConnection int) string {
	kind := "TCP"
	if tls {
		kind = "TLS"
	}
	switch perConnection {
	case 0:
		return kind + ", one connection"
	case 1:
		return kind + ", a connection for each request"
	}
	return fmt.Sprintf("%s, a connection for %d requests", kind, perConnection)
}

// wayOf names a way to write requests and replies.
func wayOf(l *probe.Latency) string {
	name := "one"
	if l.Split {
		name = "two"
	}
	for _, option := range []struct {
		name           string
		client, server bool
	}{{"nodelay", l.ClientND, l.ServerND}, {"cork", l.ClientCork, l.ServerCork}} {
		switch {
		case option.client && option.server:
			name += ", " + option.name
		case option.client:
			name += ", " + option.name + " here"
		case option.server:
			name += ", " + option.name + " there"
		}
	}
	return name
}

func detailsOf(l *probe.Latency) []string {
	if l == nil {
		return []string{"-", "-", "-", "-", "-", "-"}
	}
	connect := "-"
	if l.Connect > 0 {
		connect = units.Seconds(l.Connect)
	}
	return []string{units.Seconds(l.Median), units.Seconds(l.P99), fmt.Sprintf("%.3g", l.Rate), connect, units.Seconds(l.Send), units.Seconds(l.Wait)}
}

const wayName = 20 // columns

// printMatrix shows a whole matrix to people.
func printMatrix(w io.Writer, r *fxfer.ProbeReport) {
	for _, t := range sheets(r) {
		width := (80 - wayName) / len(t.Columns)
		fmt.Fprintf(w, "%s\n\n%-*s", t.Title, wayName, "writes")
		for _, c := range t.Columns {
			fmt.Fprintf(w, "%*s", width, c)
		}
		fmt.Fprintln(w)
		for _, cells := range t.Rows {
			fmt.Fprintf(w, "%-*s", wayName, cells[0])
			for _, c := range cells[1:] {
				fmt.Fprintf(w, "%*s", width, c)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
	}
}
