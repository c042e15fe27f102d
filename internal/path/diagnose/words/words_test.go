package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// constants returns the values of all constants of a type in package diagnose.
func constants(t *testing.T, kind string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../fact.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == kind {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				values = append(values, text)
			}
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}

// TestAll checks that there are words for each kind of fact and remedy, whatever the figures are.
func TestAll(t *testing.T) {
	for _, name := range constants(t, "FactKind") {
		for _, x := range []float64{0, 0.5, math.NaN(), math.Inf(1), -1} {
			f := diagnose.Fact{
				Kind: diagnose.FactKind(name), Share: x, Rate: x, Limit: x, Cores: x,
				Bytes: math.MinInt64, Need: math.MaxInt64, Count: -1, Time: math.MinInt64, Least: time.Hour,
			}
			require.NotEqual(t, name, Fact(&f))
		}
		require.NotEqual(t, name, Fact(&diagnose.Fact{Kind: diagnose.FactKind(name)}))
	}
	for _, kind := range constants(t, "RemedyKind") {
		r := diagnose.Remedy{Kind: diagnose.RemedyKind(kind)}
		if r.Kind == diagnose.SetSysctl {
			r.Sysctl = &diagnose.Sysctl{Name: "a", Value: "1 2"}
		}
		require.NotEmpty(t, Remedy(&r, "nas"), kind)
		p := PartsOf(&r)
		set := 0
		for _, text := range []string{p.Flag, p.Command, p.Advice} {
			if text != "" {
				set++
			}
		}
		if r.Sysctl == nil {
			require.Equal(t, 1, set, kind)
		}
	}
}

func TestVerdict(t *testing.T) {
	v := diagnose.Verdict{
		Limiter: diagnose.ReceiverWindow, Side: diagnose.Receiver, Host: "nas", Share: 0.82,
		Evidence: []diagnose.Fact{
			{Kind: diagnose.WindowObtained, Bytes: 3_145_728, Count: 2, Time: 50 * time.Millisecond},
			{Kind: diagnose.LineBDP, Rate: 1e9, Bytes: 6_250_000},
			{Kind: diagnose.LossNoQueue, Share: 0.005, Time: 51 * time.Millisecond, Least: 50 * time.Millisecond},
		},
		Remedies: []diagnose.Remedy{
			{Kind: diagnose.SetSysctl, Sysctl: &diagnose.Sysctl{Name: "net.ipv4.tcp_rmem", Value: "4096 131072 16777216"}, Expect: 941e6},
			{Kind: diagnose.MoreStreams, Streams: 4},
		},
	}
	require.Equal(t, "receiver window on nas (82 % of the time; it allows 3.15 MB per round trip and stream; 2 streams × 3.15 MB / 50.0 ms = 1.01 Gbit/s)", Line(&v))
	require.Equal(t, `sudo sysctl -w net.ipv4.tcp_rmem="4096 131072 16777216" on nas, or --streams 4: expect 941 Mbit/s`, Hint(&v))
	require.Equal(t, []string{
		"it allows 3.15 MB per round trip and stream; 2 streams × 3.15 MB / 50.0 ms = 1.01 Gbit/s",
		"a line of 1 Gbit/s would take a BDP of 6.25 MB in flight",
		"0.5 % of the segments were sent again, and no queue: RTT 51.0 ms, at least 50.0 ms",
	}, Evidence(&v))

	v.Remedies[1] = diagnose.Remedy{Kind: diagnose.ManageQueue}
	v.Remedies[0] = diagnose.Remedy{Kind: diagnose.LimitRate, Rate: 8_900_000}
	require.Equal(t, "--rate-limit 8900kbit", Hint(&v), "advice is no alternative to a flag")
	v.Remedies[0] = diagnose.Remedy{Kind: diagnose.SetSysctl, Sysctl: &diagnose.Sysctl{Name: "net.ipv4.tcp_window_scaling", Value: "1"}, Host: "laptop"}
	require.Equal(t, "sudo sysctl -w net.ipv4.tcp_window_scaling=1 on laptop", Hint(&v))
	v.Remedies = nil
	require.Empty(t, Hint(&v))
}
