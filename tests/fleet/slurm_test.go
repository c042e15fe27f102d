//go:build linux

package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slurm is a cluster of one node, with a controller, on this host.
type slurm struct {
	s   *site
	env []string
}

// newSlurm starts Slurm, or skips the test without it.
func newSlurm(s *site) *slurm {
	t := s.t
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s", name)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run jobs for Slurm")
	}
	dir := filepath.Join(s.dir, "slurm")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "spool"), 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	host, err := os.Hostname()
	require.NoError(t, err)
	port := func() string {
		_, port, err := net.SplitHostPort(free(t))
		require.NoError(t, err)
		return port
	}
	config := strings.Join([]string{
		"ClusterName=fxfer", "SlurmctldHost=" + host + "(127.0.0.1)", "SlurmctldPort=" + port(), "SlurmdPort=" + port(),
		"SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", "AuthInfo=socket=" + at("munge"), "CredType=cred/munge",
		"StateSaveLocation=" + at("state"), "SlurmdSpoolDir=" + at("spool"), "SlurmctldPidFile=" + at("slurmctld.pid"), "SlurmdPidFile=" + at("slurmd.pid"),
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
		"AccountingStorageType=accounting_storage/none", "MpiDefault=none", "ReturnToService=2", "SlurmdParameters=config_overrides",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "MinJobAge=3600",
		"SchedulerParameters=sched_interval=1,batch_sched_delay=0",
		"NodeName=node NodeHostname=" + host + " NodeAddr=127.0.0.1 CPUs=8", "PartitionName=main Nodes=node Default=YES State=UP", "",
	}, "\n")
	require.NoError(t, os.WriteFile(at("slurm.conf"), []byte(config), 0o644))
	require.NoError(t, os.WriteFile(at("key"), bytes.Repeat([]byte("k"), 1024), 0o400))
	require.NoError(t, os.Mkdir(at("state"), 0o700))
	s.run("/usr/sbin/munged", "munge", "--foreground", "--force", "--key-file", at("key"), "--socket", at("munge"),
		"--pid-file", at("munge.pid"), "--log-file", at("munge.log"), "--seed-file", at("munge.seed"))
	x := &slurm{s: s, env: append(os.Environ(), "SLURM_CONF="+at("slurm.conf"), "FXFER_HOME="+filepath.Join(s.dir, "member"),
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))}
	s.run("slurmctld", "slurm", "-D", "-f", at("slurm.conf"))
	s.run("slurmd", "slurm", "-D", "-f", at("slurm.conf"), "-N", "node")
	x.until("the node is idle", func() bool { return strings.Contains(x.ask("sinfo", "--noheader", "--format=%T"), "idle") })
	return x
}

// ask runs a command of Slurm's, and returns what it says, "" if it fails.
func (x *slurm) ask(args ...string) string {
	c := exec.Command(args[0], args[1:]...)
	c.Env = x.env
	out, err := c.Output()
	if err != nil {
		return ""
	}
	return string(out)
}

func (x *slurm) until(what string, is func() bool) {
	x.s.t.Helper()
	require.Eventually(x.s.t, is, longest, 100*time.Millisecond, what)
}

// TestSlurmArray sends a tree as an array of Slurm with eight tasks, and with the job that waits for them.
// One task is cancelled while it runs.
func TestSlurmArray(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newServer(t)
	x := newSlurm(s)
	s.tree(rng, 1200)
	out := filepath.Join(s.dir, "files", "out")
	require.NoError(t, os.MkdirAll(filepath.Join(out, "extra"), 0o755))
	jobs := filepath.Join(s.dir, "jobs")
	require.NoError(t, os.Mkdir(jobs, 0o755))
	script, err := filepath.Abs("../../deploy/slurm/send")
	require.NoError(t, err)
	submit := exec.Command(script, "8", "--delete", "--rate-limit", "4mbit", s.source()+"/", s.url+"/out")
	submit.Env, submit.Dir = x.env, jobs
	said, err := submit.CombinedOutput()
	require.NoError(t, err, "%s", said)
	var array, last int
	_, err = fmt.Sscanf(string(said), "shards: job %d, finish: job %d", &array, &last)
	require.NoError(t, err, "%s", said)
	third := fmt.Sprint(array, "_3")
	x.until("it runs", func() bool {
		return strings.TrimSpace(x.ask("squeue", "--noheader", "--states=RUNNING", "--job="+third)) != ""
	})
	x.ask("scancel", third)
	x.until("no job is left", func() bool {
		return x.ask("scontrol", "ping") != "" && strings.TrimSpace(x.ask("squeue", "--noheader")) == ""
	})

	for name, state := range map[string]string{fmt.Sprint(last): "COMPLETED", third: "CANCELLED", fmt.Sprint(array, "_5"): "COMPLETED"} {
		require.Contains(t, x.ask("scontrol", "--oneliner", "show", "job", name), "JobState="+state+" ")
	}
	agree(t, s.source(), out)
	sent := map[int]int64{}
	for i := range 8 {
		sent[i] = reported(t, filepath.Join(jobs, fmt.Sprintf("slurm-%d_%d.out", array, i)))
		if i != 3 { // it may have sent some before it ended
			require.Positive(t, sent[i], "shard %d", i)
		}
	}
	t.Logf("files sent by shards: %v; by the last job: %d", sent, reported(t, filepath.Join(jobs, fmt.Sprintf("slurm-%d.out", last))))
}

// reported returns how many files a job has sent, as its output says; 0 if it was cancelled.
func reported(t *testing.T, file string) int64 {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var r struct {
			Type string
			Sent int64 `json:"files_sent"`
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Type == "summary" {
			return r.Sent
		}
	}
	return 0
}
