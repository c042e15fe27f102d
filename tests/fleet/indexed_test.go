//go:build linux

package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// TestIndexedJob runs what deploy/kubernetes/shards.yaml says, with a process for each pod: first as many
// as there are indexes, of which one is killed and replaced, and one is killed and not, then the one
// that finishes.
func TestIndexedJob(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newServer(t)
	s.tree(rng, 1200)
	out := filepath.Join(s.dir, "files", "out")
	require.NoError(t, os.MkdirAll(filepath.Join(out, "extra"), 0o755))
	pods := podsOf(t, "../../deploy/kubernetes/shards.yaml")
	start := func(job string, index int) *process {
		var args []string
		for _, a := range pods[job].args {
			a = strings.ReplaceAll(a, "$(JOB_COMPLETION_INDEX)", fmt.Sprint(index)) // as the kubelet does
			switch {
			case a == "/data/":
				a = s.source() + "/"
			case strings.HasPrefix(a, "fxfer://"):
				a = s.url + "/out"
			}
			args = append(args, a)
		}
		return s.run(program, "member", append(args, "--rate-limit", "4mbit")...)
	}
	require.Equal(t, 8, pods["fxfer-shards"].completions)
	var running []*process
	for i := range pods["fxfer-shards"].completions {
		running = append(running, start("fxfer-shards", i))
	}
	for _, p := range running[:2] {
		p.begins()
		p.kill()
	}
	running[0].start() // restartPolicy: Never, but backoffLimitPerIndex: another pod
	for _, p := range running {
		<-p.done
	}
	last := start("fxfer-finish", 0)
	<-last.done
	require.True(t, last.cmd.ProcessState.Success(), last.output())
	agree(t, s.source(), out)
	require.Contains(t, last.output(), `"files_sent":`)
}

// begins waits until the process has sent something.
func (p *process) begins() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.output(), `"type":"progress"`) || !p.alive() }, longest, 10*time.Millisecond)
}

type pod struct {
	completions int
	args        []string
}

// podsOf reads the jobs of a file, by their names.
func podsOf(t *testing.T, file string) map[string]pod {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	all := map[string]pod{}
	for d := yaml.NewDecoder(f); ; {
		var job struct {
			Metadata struct{ Name string }
			Spec     struct {
				Completions int
				Template    struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if d.Decode(&job) != nil {
			return all
		}
		all[job.Metadata.Name] = pod{job.Spec.Completions, job.Spec.Template.Spec.Containers[0].Args}
	}
}
