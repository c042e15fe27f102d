package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePattern(t *testing.T) {
	for _, c := range []struct {
		in, path string
		elements []string
		slash    bool
	}{
		{"fxfer://nas/files", "", nil, false},
		{"fxfer://nas/files/a/b/", "a/b", nil, true},
		{"fxfer://nas/files/*", "", []string{"*"}, false},
		{"fxfer://nas/files/a/*.iso/", "a", []string{"*.iso"}, true},
		{"fxfer://nas/files/a//b?//c%2A", "a", []string{"b?", `c\*`}, false},
		{"fxfer://[::1]:9/files/[a-c]%5B%5D%3F%5C", "", []string{`[a-c]\[\]\?\\`}, false},
		{"fxfer://nas/files/%2A", "*", nil, false},
	} {
		u, elements, err := ParsePattern(c.in)
		require.NoError(t, err, c.in)
		require.Equal(t, c.path, u.Path, c.in)
		require.Equal(t, c.elements, elements, c.in)
		require.Equal(t, c.slash, u.TrailingSlash, c.in)
		require.Equal(t, "files", u.Share, c.in)
	}
	for _, bad := range []string{
		"nas/files/*", "fxfer://nas/files/[a", "fxfer://nas/files/*/../x", "fxfer://nas/files/*%2F",
		"fxfer://nas/files/*%00", "fxfer://nas/files/*%", "fxfer://nas/files/*#", "fxfer://*/files",
	} {
		_, _, err := ParsePattern(bad)
		require.Error(t, err, bad)
	}
	for _, c := range []struct {
		element, name string
		fits          bool
	}{
		{"*", "a", true}, {"*", ".a", false}, {".*", ".a", true}, {`\*`, "*", true}, {`\*`, "a", false},
		{"[a-c]?", "b1", true}, {"[a-c]?", "d1", false}, {"?", "", false}, {"a", "a", true},
	} {
		require.Equal(t, c.fits, MatchName(c.element, c.name), "%+v", c)
	}
}

// FuzzPattern: what ParsePattern accepts can be matched, and without a pattern it is what ParseURL says.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"fxfer://nas/files/a/*.iso", "fxfer://[::1]/s/[a-z]%5B?", "fxfer://nas/s/%2A/", "fxfer://h/s/**/\\"} {
		f.Add(s, "name")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		u, elements, err := ParsePattern(s)
		if err != nil {
			return
		}
		if elements == nil {
			plain, err := ParseURL(s)
			require.NoError(t, err)
			require.Equal(t, plain, u)
		}
		for _, e := range elements {
			require.NotEmpty(t, e)
			MatchName(e, name)
		}
	})
}
