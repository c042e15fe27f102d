// Package packages_test compares the packages with their sources.
package packages_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

const top = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	require.NoError(t, err)
	return string(text)
}

// Both ways to build a deb put the same files into it.
func TestContents(t *testing.T) {
	type contents []struct {
		Src, Dst, Type string
		FileInfo       struct{ Mode int } `yaml:"file_info"`
	}
	type pack struct {
		Description, Section, Maintainer, License string
		Scripts                                   map[string]string
		Contents                                  contents
	}
	var own pack
	var release struct{ Nfpms []pack }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/package/nfpm.yaml")), &own))
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &release))
	require.Len(t, release.Nfpms, 1)
	other := release.Nfpms[0]
	require.Equal(t, "/usr/bin/fxfer", own.Contents[0].Dst)
	own.Contents = own.Contents[1:] // goreleaser adds the program by itself
	for i := range own.Contents {
		own.Contents[i].Src = strings.Replace(own.Contents[i].Src, "dist/stage/", "extra/", 1)
	}
	require.Equal(t, own, other)
	for _, c := range own.Contents {
		if !strings.HasPrefix(c.Src, "extra/") {
			found, err := filepath.Glob(filepath.Join(top, c.Src))
			require.NoError(t, err)
			require.NotEmpty(t, found, c.Src)
		}
	}
	for _, script := range own.Scripts {
		require.FileExists(t, filepath.Join(top, script))
	}
}

// documents returns the documents of a YAML stream, by kind and name.
func documents(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := make(map[string]map[string]any)
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var m map[string]any
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if m != nil {
			meta := m["metadata"].(map[string]any)
			all[fmt.Sprint(m["kind"], "/", meta["name"])] = m
		}
	}
}

// Helm's templates are Go templates with additional functions. These are the ones that the chart
// uses.
func functions(all *template.Template) template.FuncMap {
	indent := func(n int, s string) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n)) }
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b bytes.Buffer
			err := all.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"nindent": func(n int, s string) string { return indent(n, "\n"+s) },
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"toJson": func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
		"quote":  func(s string) string { return fmt.Sprintf("%q", s) },
		"default": func(other, v any) any {
			if v == nil || v == "" {
				return other
			}
			return v
		},
		"list": func(all ...any) []any { return all },
		"concat": func(lists ...[]any) (all []any) {
			for _, l := range lists {
				all = append(all, l...)
			}
			return all
		},
		"sha256sum": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
	}
}

// templates are those of the chart that make objects.
var templates = []string{"server.yaml", "backups.yaml", "fleet.yaml", "workers.yaml"}

// render does the same as `helm template`, as far as this chart needs it.
func render(t *testing.T, change func(values map[string]any)) string {
	t.Helper()
	const chart = "deploy/helm/fxfer"
	var values, about map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &values))
	require.NoError(t, yaml.Unmarshal([]byte(read(t, chart+"/Chart.yaml")), &about))
	change(values)
	all := template.New("")
	all.Funcs(functions(all)).Option("missingkey=zero")
	for _, name := range append([]string{"_helpers.tpl"}, templates...) {
		_, err := all.New(name).Parse(read(t, chart+"/templates/"+name))
		require.NoError(t, err)
	}
	data := map[string]any{
		"Values": values, "Release": map[string]any{"Name": "fxfer", "Service": "Helm"}, "Chart": map[string]any{"AppVersion": about["appVersion"]},
	}
	var b strings.Builder
	for _, name := range templates {
		require.NoError(t, all.ExecuteTemplate(&b, name, data))
		b.WriteString("\n")
	}
	return b.String()
}

// The chart renders the same objects as the plain manifests. Both consist of well-formed objects
// that refer to each other.
func TestKubernetes(t *testing.T) {
	plain := documents(t, read(t, "deploy/kubernetes/fxfer.yaml"))
	chart := documents(t, render(t, func(v map[string]any) {
		v["backups"] = []any{map[string]any{
			"name": "backup", "schedule": "17 2 * * *", "claim": "app-data", "url": "fxfer://fxfer/files/app-data", "args": []any{"--retry-for", "2h"},
		}}
	}))
	var names []string
	for name, object := range plain {
		names = append(names, name)
		require.Contains(t, chart, name)
		require.Equal(t, object["apiVersion"], chart[name]["apiVersion"], name)
	}
	require.Len(t, chart, len(names))
	pod := func(m map[string]any, path ...string) map[string]any {
		for _, key := range path {
			m = m[key].(map[string]any)
		}
		return m
	}
	for _, all := range []map[string]map[string]any{plain, chart} {
		server := pod(all["StatefulSet/fxfer"], "spec", "template", "spec")
		backup := pod(all["CronJob/fxfer-backup"], "spec", "jobTemplate", "spec", "template", "spec")
		for _, p := range []map[string]any{server, backup} {
			require.Equal(t, true, pod(p, "securityContext")["runAsNonRoot"])
			c := p["containers"].([]any)[0].(map[string]any)
			security := c["securityContext"].(map[string]any)
			require.Equal(t, true, security["readOnlyRootFilesystem"])
			require.Equal(t, false, security["allowPrivilegeEscalation"])
			require.Equal(t, map[string]any{"drop": []any{"ALL"}}, security["capabilities"])
		}
		ports := server["containers"].([]any)[0].(map[string]any)["ports"].([]any)
		require.Len(t, ports, 3)
		var config map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(pod(all["ConfigMap/fxfer"], "data")["fxfer.yaml"].(string)), &config))
		require.Equal(t, map[string]any{"files": map[string]any{"dir": "/srv/fxfer"}}, config["shares"])
	}
	same := func(path ...string) {
		require.Equal(t, pod(plain["StatefulSet/fxfer"], path...)["matchLabels"] != nil, pod(chart["StatefulSet/fxfer"], path...)["matchLabels"] != nil)
	}
	same("spec", "selector")
	require.NotContains(t, render(t, func(map[string]any) {}), "fxfer-tls")
	secret := documents(t, render(t, func(v map[string]any) { v["tlsSecret"] = "nas" }))
	require.Contains(t, fmt.Sprint(pod(secret["StatefulSet/fxfer"], "spec", "template", "spec")["volumes"]), "secretName:nas")
	require.NotContains(t, render(t, func(v map[string]any) { v["server"].(map[string]any)["enabled"] = false }), "StatefulSet")
	require.NotContains(t, render(t, func(v map[string]any) { v["networkPolicy"].(map[string]any)["enabled"] = false }), "NetworkPolicy")
}

// A fleet's controller and its workers find each other, and share a secret, of which workers see only
// what is for members.
func TestFleetChart(t *testing.T) {
	at := func(m any, path ...any) any {
		for _, p := range path {
			switch p := p.(type) {
			case string:
				m = m.(map[string]any)[p]
			case int:
				m = m.([]any)[p]
			}
		}
		return m
	}
	chart := func(nats ...any) (controller, worker any, all map[string]map[string]any) {
		all = documents(t, render(t, func(v map[string]any) {
			v["server"].(map[string]any)["enabled"] = false
			v["workers"].(map[string]any)["replicas"] = 3
			v["fleet"].(map[string]any)["enabled"] = true
			v["fleet"].(map[string]any)["nats"] = nats
		}))
		return at(all["StatefulSet/fxfer-fleet"], "spec", "template"), at(all["Deployment/fxfer-workers"], "spec", "template"), all
	}
	controller, worker, all := chart()
	require.Len(t, all, 4) // and a service and a policy
	for _, p := range []any{controller, worker} {
		require.Equal(t, true, at(p, "spec", "securityContext", "runAsNonRoot"))
		require.Equal(t, true, at(p, "spec", "containers", 0, "securityContext", "readOnlyRootFilesystem"))
		require.Equal(t, "map[memory:1Gi]", fmt.Sprint(at(p, "spec", "containers", 0, "resources", "limits")))
		require.Equal(t, "fxfer-fleet", at(p, "spec", "volumes", len(at(p, "spec", "volumes").([]any))-1, "secret", "secretName"))
	}
	args := func(p any) string { return fmt.Sprint(at(p, "spec", "containers", 0, "args")) }
	require.Equal(t, "[fleet start --web :7436]", args(controller))
	require.Equal(t, "[fleet worker --controller fxfer-fleet:7435 --credentials /etc/fxfer-fleet/credentials.json --name $(POD_NAME) --read /data]", args(worker))
	require.Contains(t, fmt.Sprint(at(worker, "spec", "volumes")), "items:[map[key:credentials.json path:credentials.json]]")
	mounts := fmt.Sprint(at(controller, "spec", "containers", 0, "volumeMounts"))
	require.Contains(t, mounts, "/var/lib/fxfer/fleet/controller.key")
	require.Equal(t, at(controller, "metadata", "labels"), at(all["Service/fxfer-fleet"], "spec", "selector"))
	require.Equal(t, at(controller, "metadata", "labels"), at(all["NetworkPolicy/fxfer-fleet"], "spec", "podSelector", "matchLabels"))

	controller, worker, _ = chart("--nats", "tls://nats:4222", "--nats-credentials", "/etc/fxfer-fleet/me.creds")
	require.Equal(t, "[fleet start --web :7436 --nats tls://nats:4222 --nats-credentials /etc/fxfer-fleet/me.creds]", args(controller))
	require.Equal(t, "[fleet worker --nats tls://nats:4222 --nats-credentials /etc/fxfer-fleet/me.creds --name $(POD_NAME) --read /data]", args(worker))
	require.NotContains(t, fmt.Sprint(at(worker, "spec", "volumes")), "items")
	require.NotContains(t, fmt.Sprint(at(controller, "spec", "containers", 0, "volumeMounts")), "subPath")
	require.NotContains(t, render(t, func(map[string]any) {}), "fleet")
}

// The jobs of a tree in shards run the same command in the same pod, the first one with as many
// shards as it has pods.
func TestShardJobs(t *testing.T) {
	jobs := documents(t, read(t, "deploy/kubernetes/shards.yaml"))
	spec := func(name string) map[string]any { return jobs["Job/"+name]["spec"].(map[string]any) }
	pod := func(name string) map[string]any {
		return spec(name)["template"].(map[string]any)["spec"].(map[string]any)
	}
	container := func(name string) map[string]any { return pod(name)["containers"].([]any)[0].(map[string]any) }
	shards, finish := container("fxfer-shards"), container("fxfer-finish")
	args := shards["args"].([]any)
	require.Equal(t, []any{"send", "--shard", fmt.Sprintf("$(JOB_COMPLETION_INDEX)/%v", spec("fxfer-shards")["completions"])}, args[:3])
	require.Equal(t, append([]any{"send"}, args[3:]...), finish["args"])
	require.Equal(t, "Indexed", spec("fxfer-shards")["completionMode"])
	require.Equal(t, true, spec("fxfer-finish")["suspend"])
	delete(shards, "args")
	delete(finish, "args")
	require.Equal(t, pod("fxfer-shards"), pod("fxfer-finish"))
	require.Equal(t, true, pod("fxfer-shards")["securityContext"].(map[string]any)["runAsNonRoot"])
}

// The script for Slurm submits an array and a job that waits for it, and both run what they should.
func TestSlurm(t *testing.T) {
	dir := t.TempDir()
	stub := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	stub("fxfer", `echo "fxfer $*" >>"$LOG"`)
	stub("sbatch", `
echo "sbatch $*" >>"$LOG"
case "$*" in *--array\ 0-2*) ids="0 1 2" ;; *) ids= ;; esac
while [ "${1#-}" != "$1" ]; do
    case "$1" in --job-name | --array | --dependency) shift ;; esac
    shift
done
if [ -n "$ids" ]; then
    for i in $ids; do SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=3 "$@"; done
    echo "17;cluster"
else
    SLURM_JOB_ID=2 "$@"
    echo 18
fi
`)
	run := func(args ...string) (said, log string, err error) {
		file := filepath.Join(t.TempDir(), "log")
		c := exec.Command(filepath.Join(top, "deploy/slurm/send"), args...)
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+file)
		out, err := c.CombinedOutput()
		text, _ := os.ReadFile(file)
		return string(out), string(text), err
	}
	said, log, err := run("3", "--delete", "a b/", "fxfer://nas/files")
	require.NoError(t, err, said)
	require.Equal(t, "shards: job 17, finish: job 18\n", said)
	flags := "--retry-for 10m --json --delete a b/ fxfer://nas/files\n"
	require.Contains(t, log, "fxfer send --shard 0/3 "+flags+"fxfer send --shard 1/3 "+flags+"fxfer send --shard 2/3 "+flags)
	require.Contains(t, log, "--dependency afterany:17 ")
	require.True(t, strings.HasSuffix(log, "fxfer send "+flags), log)
	for _, args := range [][]string{nil, {"x", "a", "b"}} {
		said, log, err = run(args...)
		require.Error(t, err)
		require.Contains(t, said, "usage")
		require.Empty(t, log)
	}
}

// The metrics that the Grafana dashboard queries exist.
func TestGrafana(t *testing.T) {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana/fxfer.json")), &board))
	metrics, rules := read(t, "docs/metrics.md"), read(t, "deploy/prometheus/rules.yml")
	name := regexp.MustCompile(`\b(fxfer[_:][a-z0-9_:]+|process_[a-z_]+|go_[a-z_]+)`)
	asked := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, m := range name.FindAllString(target.Expr, -1) {
				asked++
				base := strings.TrimSuffix(m, "_bucket")
				known := strings.Contains(metrics, "`"+base+"`") || strings.Contains(rules, "record: "+m+"\n") || strings.HasPrefix(m, "process_") || strings.HasPrefix(m, "go_")
				require.True(t, known, "%s asks for %s", p.Title, m)
			}
		}
	}
	require.Greater(t, asked, 10)
	if promtool, err := exec.LookPath("promtool"); err == nil { // promtool parses each query as a rule
		rule := "groups:\n  - name: board\n    rules:\n"
		n := 0
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				n++
				expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$share", ".*").Replace(target.Expr)
				rule += fmt.Sprintf("      - { record: 'board:panel:%d', expr: %q }\n", n, expr)
			}
		}
		file := filepath.Join(t.TempDir(), "board.yml")
		require.NoError(t, os.WriteFile(file, []byte(rule), 0o600))
		out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	// The metrics in the alerts exist, too.
	for _, m := range name.FindAllString(rules, -1) {
		base := strings.TrimSuffix(m, "_bucket")
		require.True(t, strings.Contains(metrics, "`"+base+"`") || strings.Contains(rules, "record: "+m+"\n"), m)
	}
}
