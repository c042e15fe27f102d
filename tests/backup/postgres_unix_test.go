//go:build unix

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// database is a PostgreSQL server that listens on a socket in a folder of its own.
type database struct {
	t    *testing.T
	bin  string
	dir  string
	cred *syscall.Credential // PostgreSQL refuses to run as root
}

// postgres starts a database, or skips the test.
func postgres(t *testing.T) *database {
	t.Helper()
	d := &database{t: t}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil && found == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed")
	}
	d.bin = filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "fx") // short, because the path of a socket may not be long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d.dir = dir
	if os.Geteuid() == 0 {
		who, err := user.Lookup("postgres")
		if err != nil {
			who, err = user.Lookup("nobody")
		}
		if err != nil {
			t.Skip("there is nobody to run PostgreSQL as")
		}
		uid, err := strconv.ParseUint(who.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(who.Gid, 10, 32)
		require.NoError(t, err)
		d.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Skip("the database's folder can't be given away: ", err)
		}
	}
	made := d.command("initdb", "-D", dir+"/data", "-U", "me", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C")
	if out, err := made.CombinedOutput(); err != nil {
		var refused *exec.ExitError
		if !errors.As(err, &refused) || strings.Contains(string(out), "Permission denied") {
			t.Skip("PostgreSQL can't run here as another user: ", err, string(out))
		}
		require.NoError(t, err, string(out))
	}
	server := d.command("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	said := &strings.Builder{}
	server.Stderr = said
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt) // fast shutdown
		_ = server.Wait()
	})
	require.Eventually(t, func() bool { return d.command("psql", d.args("postgres", "-c", "select 1")...).Run() == nil }, time.Minute, 100*time.Millisecond)
	return d
}

func (d *database) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(d.bin, name), args...)
	c.Dir = d.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.cred}
	return c
}

func (d *database) args(name string, more ...string) []string {
	return append([]string{"-h", d.dir, "-U", "me", "-d", name, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"}, more...)
}

func (d *database) sql(name, text string) string {
	d.t.Helper()
	c := d.command("psql", d.args(name, "-c", text)...)
	out, err := c.CombinedOutput()
	require.NoError(d.t, err, string(out))
	return strings.TrimSpace(string(out))
}

// A job dumps a database that is written to. The restored database has the state of one moment.
func TestPostgres(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	d.sql("postgres", "create database shop")
	// Each transaction moves money. The sum stays the same, and so does the total count of rows in
	// both tables.
	d.sql("shop", `create table account(id int primary key, balance bigint not null, note text not null);
insert into account select n, 1000, repeat(md5(n::text), 20) from generate_series(1, 5000) n;
create table transfer(id serial primary key, source int, target int, amount bigint)`)

	home, dir := t.TempDir(), t.TempDir()
	_, url := serve(t, home, dir)
	pgDump := fmt.Sprintf("%s -h %s -U me shop", filepath.Join(d.bin, "pg_dump"), d.dir)
	require.NoError(t, os.WriteFile(filepath.Join(home, "backup.yaml"), fmt.Appendf(nil, `jobs:
- {name: shop, command: %q, file: shop.sql, destination: %q, rate: 100mbit}
- {name: broken, command: %q, file: shop.sql, destination: %q, retries: 0}
`, pgDump, url+"/shop", pgDump+"_that_is_not_there", url+"/broken"), 0o600))

	load, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := w; load.Err() == nil; n += 2 {
				a, b := 1+n*7919%5000, 1+(n*104729+1)%5000
				c := d.command("psql", d.args("shop", "-c", fmt.Sprintf(`begin; update account set balance = balance - 7 where id = %d; update account set balance = balance + 7 where id = %d;
insert into transfer(source, target, amount) values (%d, %d, 7); commit`, min(a, b), max(a, b), min(a, b), max(a, b)))...)
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
					return
				}
			}
		})
	}
	const runs = 3
	for range runs {
		output(t, fxfer(home, "backup", "run", "shop"))
	}
	stop()
	writers.Wait()
	require.Error(t, fxfer(home, "backup", "run", "--quiet", "broken").Run())
	require.NoFileExists(t, filepath.Join(dir, "broken", "latest"))

	moved := d.sql("shop", "select count(*) from transfer")
	require.NotEqual(t, "0", moved)
	entries, err := os.ReadDir(filepath.Join(dir, "shop"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	require.Len(t, names, runs)
	for i, name := range names {
		restored := t.TempDir()
		output(t, fxfer(home, "backup", "restore", "--quiet", "shop", "--at", name, restored))
		dump, err := os.Open(filepath.Join(restored, "shop.sql"))
		require.NoError(t, err)
		into := fmt.Sprintf("restored%d", i)
		d.sql("postgres", "create database "+into)
		c := d.command("psql", d.args(into)...)
		c.Stdin = dump
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		dump.Close()
		require.Equal(t, "5000|5000000", d.sql(into, "select count(*), sum(balance) from account"), "one moment")
		// The balance of each account follows from its transfers.
		require.Equal(t, "0", d.sql(into, `select count(*) from account a where balance <> 1000
- coalesce((select sum(amount) from transfer where source = a.id and source <> target), 0) + coalesce((select sum(amount) from transfer where target = a.id and source <> target), 0)`))
		t.Logf("%s: %s of %s transfers", name, d.sql(into, "select count(*) from transfer"), moved)
	}
	// While nobody writes, the dump equals one made by hand.
	output(t, fxfer(home, "backup", "run", "--quiet", "shop"))
	byHand, err := d.command("pg_dump", "-h", d.dir, "-U", "me", "shop").Output()
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "shop", "latest", "shop.sql"))
	require.NoError(t, err)
	require.Equal(t, withoutKeys(string(byHand)), withoutKeys(string(got)))
}

// withoutKeys removes the random keys that newer versions of pg_dump write into their output.
func withoutKeys(dump string) string {
	var kept []string
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, `\restrict`) && !strings.HasPrefix(line, `\unrestrict`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
