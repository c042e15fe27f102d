package access

import (
	"os"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/stretchr/testify/require"
)

// TestDocumentedRules: the table of rights in docs/server.md says what Rules say.
func TestDocumentedRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| what a client wants to do |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:] // without the two lines of the head
	var documented []Rule
	for i, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, 5, row)
		rule := Rule{Effect: 1 << i, Does: cells[0]}
		for at := range places {
			if cells[1+at] != "nobody" {
				rule.Right[at], err = identity.ParseRights(strings.Trim(cells[1+at], "`"))
				require.NoError(t, err, row)
			}
		}
		switch cells[4] {
		case "`append`, of snapshots and in them":
			rule.Own = [places]identity.Rights{Beside: identity.Append, Snapshot: identity.Append}
		case "`append`, in snapshots":
			rule.Own = [places]identity.Rights{Snapshot: identity.Append}
		case "`append`":
			rule.Own = [places]identity.Rights{Outside: identity.Append, Beside: identity.Append}
		default:
			require.Equal(t, "no more", cells[4], row)
		}
		documented = append(documented, rule)
	}
	require.Equal(t, Rules, documented)
}
