package snapshot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzKeep writes a policy that was read and reads it again. It never lets the newest snapshot go.
func FuzzKeep(f *testing.F) {
	f.Add("daily=7,weekly=4", int64(0))
	f.Add("all", int64(1_795_000_000))
	f.Add("last=2147483647, yearly=0", int64(1))
	f.Fuzz(func(t *testing.T, text string, at int64) {
		k, err := ParseKeep(text)
		if err != nil || at < 0 || at > 4e9 {
			return
		}
		again, err := ParseKeep(k.String())
		require.NoError(t, err)
		require.Equal(t, k, again)
		var names []string
		for i := range int64(30) {
			names = append(names, Name(time.Unix(at+i*i*3600, 0)))
		}
		keep, remove := k.Decide(names, time.UTC)
		require.Len(t, names, len(keep)+len(remove))
		require.Equal(t, names[len(names)-1], keep[0].Name)
	})
}

// FuzzName checks that a name that was read is the name of its time.
func FuzzName(f *testing.F) {
	f.Add(Name(time.Unix(1_795_000_000, 0)))
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		if at, err := ParseName(name); err == nil {
			require.Equal(t, name, Name(at))
			require.NotContains(t, name, "/")
		}
	})
}
