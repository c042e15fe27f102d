package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
)

// TestRelayed: what a session says of its way is about the present one. A session that goes on without
// its relay looks after the rate of the whole path again.
func TestRelayed(t *testing.T) {
	t.Parallel()
	first, second := session.URL{Host: "a", Port: 1}, session.URL{Host: "b", Port: 1}
	for name, x := range map[string]struct {
		via  []session.URL
		want []bool // by the present way
	}{
		"no relay":             {nil, []bool{false}},
		"one":                  {[]session.URL{first}, []bool{true, true}},
		"one, then directly":   {[]session.URL{first, direct}, []bool{true, false, true}},
		"directly, then one":   {[]session.URL{direct, first}, []bool{false, true, false}},
		"two, and none at all": {[]session.URL{first, second, direct}, []bool{true, true, false, true}},
	} {
		d := &dialer{client: &Client{opt: Options{Via: x.via}}}
		for i, want := range x.want {
			require.Equal(t, want, d.relayed(), "%s: way %d", name, i)
			d.client.nextWay(int64(i))
		}
	}
}
