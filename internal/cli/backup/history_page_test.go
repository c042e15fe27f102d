package backup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/backup"
)

func pageOf(t *testing.T, job string, records ...backup.Record) string {
	t.Helper()
	var b strings.Builder
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i := range records {
		records[i].Started = now.AddDate(0, 0, i-len(records))
	}
	require.NoError(t, writeHistoryPage(&b, job, now.AddDate(0, 0, -30), now, records))
	require.NotContains(t, b.String(), "ZgotmplZ", "the template rejects a value")
	return b.String()
}

// Lines join the runs of a job, and nothing else. Each job has its own colour and key.
func TestHistoryPage(t *testing.T) {
	t.Parallel()
	run := backup.Record{Job: "home", Verb: "backup", Working: 60, Outcome: backup.Good, Bytes: 1e9, Written: 1e8, Goodput: 1e8}
	plain := backup.Record{Verb: "send", Target: "fxfer://nas/<b>.img", Working: 9, Outcome: backup.Good, Bytes: 1e9, Written: 1e9, Goodput: 9e8}
	failed := run
	failed.Outcome, failed.Error = backup.Failed, "connection refused"

	page := pageOf(t, "", plain, plain, plain)
	require.NotContains(t, page, "joins\"", "plain transfers have nothing to do with each other")
	require.Contains(t, page, `<path class="s0 dots"`)
	require.Contains(t, page, "<bdi>plain send</bdi>")
	require.Contains(t, page, "<bdi>send fxfer://nas/&lt;b&gt;.img</bdi>")

	page = pageOf(t, "", run, plain, run, failed, plain)
	for _, part := range []string{
		`<path class="s0 joins" d="M0.0 `, `<path class="s1 dots"`, "did not succeed", `<div class="bad">connection refused</div>`, `<td class="bad">failed</td>`,
		"Since 2026-10-23", "2026-11-17</span>", "2026-11-21</span>",
	} {
		require.Contains(t, page, part)
	}
	require.NotContains(t, page, "s1 joins")
	require.Less(t, strings.Index(page, "2026-11-21 "), strings.Index(page, "2026-11-20 "), "the newest is first")

	require.Contains(t, pageOf(t, "home"), "<p>No backup began since then.</p>")
	require.Contains(t, pageOf(t, ""), "<p>No transfer began since then.</p>")
	require.Contains(t, pageOf(t, "home", run), "Backups of <bdi>home</bdi>")

	var many []backup.Record
	for i := range 20 {
		r := run
		r.Job = fmt.Sprintf("job-%d", i%8)
		many = append(many, r)
	}
	page = pageOf(t, "", many...)
	require.Contains(t, page, "<bdi>others</bdi>", "there are more jobs than colours")
	require.NotContains(t, page, "s5 joins")
}
