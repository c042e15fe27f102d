package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzInvites: every parsed invitation has a token, a right and an end.
func FuzzInvites(f *testing.F) {
	f.Add(invitesHeader + "0123456789abcdef data=rw,pub=ro 2026-11-21T12:00:00Z open  # x\n")
	f.Add("a *=rw 2026-11-21T12:00:00Z used\nb c d e\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		for _, v := range parseInvites(text) {
			require.NotEmpty(t, v.token)
			require.NotEmpty(t, v.grants)
			require.False(t, v.expires.IsZero() && !v.used)
		}
	})
}
