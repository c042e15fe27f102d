package backup

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const fullConfig = `
time-zone: Europe/Berlin
notify:
  - webhook: https://example.org/hook
    on: [failure, alarm]
    headers: {Authorization: Bearer x}
tls: {ca: /etc/fxfer/ca.crt}
jobs:
  - name: home
    schedule: "30 2 * * mon-fri"
    jitter: 10m
    sources: [/home, /etc/]
    filters: ["*.tmp", "!keep.tmp"]
    max-size: 2GiB
    one-file-system: true
    destination: fxfer://nas/backup/home
    keep: {last: 3, daily: 7, yearly: 2}
    window: 22:00-06:00
    overrun: pause
    rate: mon-fri 08:00-18:00 50mbit, otherwise unlimited
    retries: 2
    backoff: 30s
    max-age: 2d
    pre: lvcreate -s -n snap vg/home
    post:
      - command: lvremove -f vg/snap
        timeout: 1m
        env: {MODE: quiet}
        when: always
        on-failure: fail
    verify: "0 12 * * sun"
    tls: {ca: system, cert: /etc/fxfer/nas.crt, key: /etc/fxfer/nas.key}
  - name: shop
    time-zone: UTC
    schedule: "@daily"
    command: |
      pg_dump shop
    file: shop.sql
    destination: fxfer://nas:7434/backup/db
    mode: mirror
    notify: {command: mail -s backup root, on: success}
`

func TestConfig(t *testing.T) {
	c, err := parseConfig("jobs.yaml", []byte(fullConfig))
	require.NoError(t, err)
	require.Len(t, c.Jobs, 2)
	home, shop := c.Job("home"), c.Job("shop")
	require.Equal(t, fxfer.TLS{CA: fxfer.SystemCA, Cert: "/etc/fxfer/nas.crt", Key: "/etc/fxfer/nas.key"}, home.TLS)
	require.Equal(t, fxfer.TLS{CA: "/etc/fxfer/ca.crt"}, shop.TLS)
	require.Equal(t, []string{"/home", "/etc/"}, home.Sources)
	require.Equal(t, []string{"*.tmp", "!keep.tmp"}, home.Filters)
	require.Equal(t, snapshot.Keep{Last: 3, Daily: 7, Yearly: 2}, home.Keep)
	require.Equal(t, "Europe/Berlin", home.Schedule.Location().String())
	require.Equal(t, Pause, home.Overrun)
	require.Equal(t, Snapshots, home.Mode)
	require.Equal(t, int64(50e6), home.Rate.Rate(moment(t, "2026-11-20T07:00:00Z")))
	require.Equal(t, 48*time.Hour, home.MaxAge)
	require.Equal(t, []Hook{{Command: "lvcreate -s -n snap vg/home", Timeout: DefaultHookTimeout, Failure: "fail"}}, home.Pre)
	require.Equal(t, []Hook{{Command: "lvremove -f vg/snap", Timeout: time.Minute, Failure: "fail", When: "always", Env: []string{"MODE=quiet"}}}, home.Post)
	require.Equal(t, []Event{EventFailure, EventAlarm}, home.Notify[0].On)
	require.True(t, home.Destination.TrailingSlash)
	require.Equal(t, "pg_dump shop\n", shop.Command)
	require.Equal(t, Mirror, shop.Mode)
	require.Equal(t, []Event{EventSuccess}, shop.Notify[0].On)
	require.Nil(t, c.Job("other"))
}

func TestConfigRefuses(t *testing.T) {
	const pull = "jobs:\n- name: a\n  source: fxfer://h/s\n  destination: "
	const job = "jobs:\n- name: a\n  sources: [/a]\n  destination: fxfer://h/s/a\n" // 4 lines
	for _, test := range []struct {
		text string
		line int
		want string
	}{
		{"", 1, "no jobs"},
		{"jobs: []", 1, "no jobs"},
		{"jbos:\n", 1, `unknown key "jbos" of the file: expected one of time-zone, notify, tls, jobs`},
		{"jobs:\n- nam: x", 2, `unknown key "nam" of a job: expected one of name, time-zone, schedule`},
		{"jobs:\n- name: a\n  name: b", 3, ""},
		{job + "  colour: red", 5, `unknown key "colour"`},
		{job + "  schedule: 30 2 * *", 5, "minute, hour, day"},
		{job + "  schedule: 61 2 * * *", 5, "minute"},
		{job + "  time-zone: Europe/Berlim", 5, "not a time zone"},
		{job + "  keep: {dayly: 3}", 5, `unknown key "dayly" of keep: expected one of last, hourly`},
		{job + "  keep: {daily: many}", 5, `"many" is not a number`},
		{job + "  keep: {daily: 0}", 5, "keep nothing"},
		{job + "  window: 22:00", 5, "expected days and times"},
		{job + "  overrun: pause", 5, "no window to overrun"},
		{job + "  window: 22:00-06:00\n  overrun: stop", 6, `"stop" is not one of continue, pause, fail`},
		{job + "  rate: mon 50", 5, "is not a rate"},
		{job + "  command: pg_dump\n  file: x", 5, "either sources or a command"},
		{job + "  file: x", 5, "there is no command"},
		{job + "  mode: mirror\n  keep: {last: 3}", 6, "a mirror has none"},
		{job + "  mode: mirror\n  allow-failed: 3", 6, "a mirror has none"},
		{job + "  allow-failed: 10001", 5, "10001 entries are too many: expected at most 10000"},
		{job + "  pre: {command: x, when: always}", 5, `unknown key "when" of a hook`},
		{job + "  post: {command: x, on-failure: skip}", 5, "is not one of fail, warn"},
		{job + "  post: [{timeout: 1m}]", 5, "no command"},
		{job + "  notify: {webhook: ftp://x}", 5, "expected a URL"},
		{job + "  notify: {on: [failure]}", 5, "either a webhook or a command"},
		{job + "  notify: {command: x, on: [failed]}", 5, "is not one of success"},
		{job + "  max-age: soon", 5, "is not a time"},
		{job + "  tls: {ca: ca.crt}", 5, "not an absolute path"},
		{job + "  tls:\n    cert: /x", 6, "cert and key belong together"},
		{job + "  tls: {pin: x}", 5, `unknown key "pin" of tls: expected one of ca, cert, key`},
		{job + "  sources: [x]", 5, ""},
		{job + strings.TrimPrefix(job, "jobs:\n"), 5, "two jobs have the name"},
		{job + "- name: b\n  sources: [/b]\n  destination: fxfer://h/s/a/", 5, "has the destination of a"},
		{pull + "/a\n  mode: replica\n  max-size: 1MB", 6, "has what the snapshots at the source have"},
		{job + "  mode: replica", 5, "a replica needs a source"},
		{job + "  privileged: true", 5, "privileged is for a job with a source"},
		{pull + "/a\n  privileged: maybe", 5, "privileged"},
		{pull + "/a\n  sources: [/a]", 3, "has either source"},
		{pull + "/a\n  command: x\n  file: y", 3, "has either source"},
		{pull + "fxfer://h/s/a", 4, "so the job gets files"},
		{pull + "a", 4, "so the job gets files"},
		{"jobs:\n- name: a\n  source: fxfer://h\n  destination: /a", 3, "names no share"},
		{"jobs:\n- name: a\n  source: /a\n  destination: fxfer://h/s/a", 3, ""},
		{pull + "/a\n" + strings.TrimPrefix(pull, "jobs:\n") + "/a/", 5, "two jobs have the name"},
		{pull + "/a\n- name: b\n  source: fxfer://h/s\n  destination: /a/", 5, "has the destination of a"},
		{pull + "/a\n- name: b\n  source: fxfer://h/s\n  destination: /a/b", 5, "in the destination of a, or around it"},
		{pull + "/a/b\n- name: b\n  source: fxfer://h/s\n  destination: /a", 5, "in the destination of a, or around it"},
		{"jobs:\n- name: a\n  sources: [a]\n  destination: fxfer://h/s/a", 3, "not an absolute path"},
		{"jobs:\n- name: a\n  sources: [/a]\n  destination: fxfer://h/s", 4, "a folder of their own"},
		{"jobs:\n- name: a\n  sources: [/a]\n  destination: fxfer://h", 4, "names no share"},
		{"jobs:\n- name: a b\n  sources: [/a]\n  destination: fxfer://h/s/a", 2, "expected letters"},
		{"jobs:\n- name: a\n  command: x\n  destination: fxfer://h/s/a", 3, "file is missing"},
		{"jobs:\n- name: a\n  command: x\n  file: ../y\n  destination: fxfer://h/s/a", 4, "not the name of a file"},
		{"jobs:\n- name: a\n  command: x\n  file: y\n  destination: fxfer://h/s/a\n  window: 1:00", 6, ""},
		{"jobs:\n- name: a\n  command: x\n  file: y\n  destination: fxfer://h/s/a\n  window: 22:00-23:00\n  overrun: pause", 7, "can't go on"},
		{"jobs:\n- name: [a", 2, ""},
		{"jobs:\n- name: a\n  destination: fxfer://h/s/a", 2, "nothing to back up"},
	} {
		_, err := parseConfig("jobs.yaml", []byte(test.text))
		var problems config.Faults
		require.ErrorAs(t, err, &problems, "%q", test.text)
		require.Contains(t, problems[0].Error(), test.want, "%q", test.text)
		require.Equal(t, test.line, problems[0].Line, "%q: %v", test.text, err)
	}
}

// TestConfigFaults: a fault hides no other, and is no reason for more.
func TestConfigFaults(t *testing.T) {
	const place = "  destination: fxfer://h/s/a\n"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"in two keys", "jobs:\n- name: a\n  sources: [/a]\n" + place + "  colour: red\n  window: never\n", []string{
			`j:5: unknown key "colour"`, `j:6: window: `,
		}},
		{"a key twice", "jobs:\n- name: a\n  name: b\n  sources: [a]\n" + place, []string{
			`j:3: the key "name" is there already, in line 2`, `j:4: sources: "a" is not an absolute path`,
		}},
		{"a wrong value and a contradiction", "jobs:\n- name: a\n  sources: [a]\n  overrun: pause\n" + place, []string{
			`j:3: sources: `, `j:4: overrun: there is no window`,
		}},
		{"a wrong value and a missing key", "jobs:\n- name: a\n  sources: [/a]\n  jitter: x\n", []string{
			`j:2: the job has no destination`, `j:4: jitter: `,
		}},
		{"a key that is misspelt", "jobs:\n- name: a\n  sourcse: [/a]\n" + place, []string{`j:3: unknown key "sourcse"`}},
		{"a destination that is wrong", "jobs:\n- name: a\n  sources: [/a]\n  destination: nas\n", []string{`j:4: destination: `}},
		{"nothing to keep for a faulty number", "jobs:\n- name: a\n  sources: [/a]\n  keep: {last: x}\n" + place, []string{`j:4: last: `}},
		{"of two jobs with one name and one destination", "jobs:\n- name: a\n  sources: [/a]\n  retries: x\n" + place + "- name: a\n  sources: [/a]\n" + place, []string{
			`j:4: retries: `, `j:6: two jobs have the name "a"`, `j:6: a has the destination of a`,
		}},
	} {
		_, err := parseConfig("j", []byte(test.text))
		var faults config.Faults
		require.ErrorAs(t, err, &faults, test.name)
		require.Len(t, faults, len(test.want), "%s: %v", test.name, faults)
		for i, f := range faults {
			require.Contains(t, f.Error(), test.want[i], test.name)
		}
	}
}
