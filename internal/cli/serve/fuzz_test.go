package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzServeFlags: every value that a flag's parser accepts is within the range of the flag.
func FuzzServeFlags(f *testing.F) {
	for _, s := range []string{"none", "14d", "a=/b:ro", "host:7433", "[::1]:1", "/srv/pub"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if age, err := parsePartialAge(s); err == nil {
			require.True(t, age >= time.Hour || age < 0 && s == "none", "%q is %v", s, age)
		}
		if host, err := nameParser("")(s); err == nil {
			require.NotEmpty(t, host)
		}
		share := parseShareFlag(s)
		require.NotContains(t, share.Name, "/")
		require.Contains(t, s, share.Dir)
	})
}
