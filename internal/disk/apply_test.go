package disk

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDiffers(t *testing.T) {
	have := Meta{Path: "x", Kind: File, Mode: 0o644, ModTime: someTime, UID: 1, GID: 2, Size: 5,
		Xattrs: []Xattr{{"security.selinux", []byte("here")}, {"user.a", []byte("1")}}}
	all := TargetOptions{Owner: true, Xattrs: true, Privileged: true}
	for name, c := range map[string]struct {
		alter func(want *Meta)
		plain bool // without options
		all   bool
	}{
		"equal":               {func(*Meta) {}, false, false},
		"size":                {func(m *Meta) { m.Size++ }, false, false},
		"kind":                {func(m *Meta) { m.Kind = Fifo }, true, true},
		"link":                {func(m *Meta) { m.Link = "y" }, true, true},
		"number of no device": {func(m *Meta) { m.Rdev = 7 }, false, false},
		"mode":                {func(m *Meta) { m.Mode |= os.ModeSetuid }, true, true},
		"type bits":           {func(m *Meta) { m.Mode |= os.ModeNamedPipe }, false, false},
		"time":                {func(m *Meta) { m.ModTime = m.ModTime.Add(1) }, true, true},
		"time zone":           {func(m *Meta) { m.ModTime = m.ModTime.In(time.FixedZone("", 60)) }, false, false},
		"no time":             {func(m *Meta) { m.ModTime = time.Time{} }, false, false},
		"owner":               {func(m *Meta) { m.UID++ }, false, true},
		"group":               {func(m *Meta) { m.GID++ }, false, true},
		"xattr added":         {func(m *Meta) { m.Xattrs = append(m.Xattrs[:2:2], Xattr{Name: "user.b"}) }, false, true},
		"xattr altered":       {func(m *Meta) { m.Xattrs = []Xattr{m.Xattrs[0], {"user.a", []byte("2")}} }, false, true},
		"xattr removed":       {func(m *Meta) { m.Xattrs = m.Xattrs[:1] }, false, true},
		"label of the host":   {func(m *Meta) { m.Xattrs = m.Xattrs[1:] }, false, false},
		"order of xattrs":     {func(m *Meta) { m.Xattrs = []Xattr{m.Xattrs[1], m.Xattrs[0]} }, false, false},
	} {
		want := have
		c.alter(&want)
		require.Equal(t, c.plain, Differs(&have, &want, &TargetOptions{}), name)
		require.Equal(t, c.all, Differs(&have, &want, &all), name)
	}
	link := Meta{Kind: Symlink, Link: "x", Mode: 0o777}
	require.False(t, Differs(&link, &Meta{Kind: Symlink, Link: "x"}, &all), "the mode of a symlink")
	device := Meta{Kind: CharDevice, Rdev: 1}
	require.True(t, Differs(&device, &Meta{Kind: CharDevice, Rdev: 2}, &TargetOptions{}))
}
