package hosts

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// Fxfer is fxfer on two hosts: a server, and a client that the server has admitted. The program is
// the file fxfer in the folder.
type Fxfer struct {
	Folder   *Folder
	Server   *lab.Host
	Client   *lab.Host
	Addr     netip.Addr // of the server
	Port     int
	Home     string // of both, in the folder
	NetAdmin bool   // both run with CAP_NET_ADMIN
	Program  string // another program in the folder that runs fxfer, "" for none
	Process  *Server
	flags    []string // the flags given to Start
}

// Start starts the server with a new identity, and admits a new client by an invitation.
func (x *Fxfer) Start(ctx context.Context, flags ...string) error {
	if err := os.RemoveAll(x.Folder.Abs(x.Home)); err != nil {
		return err
	}
	for _, dir := range []string{x.Home, x.Home + "/server", x.Home + "/client"} {
		if err := x.Folder.Mkdir(dir); err != nil {
			return err
		}
	}
	args := append([]string{"serve", "--listen", ":" + strconv.Itoa(x.Port), "--invite", "--name", x.Addr.String()}, flags...)
	x.flags = flags
	var err error
	if x.Process, err = x.Folder.Serve(ctx, x.command(x.Server, x.Home+"/server", args...), x.Port); err != nil {
		return err
	}
	var url string
	err = x.Process.Await(ctx, func() (bool, error) {
		line, _, complete := strings.Cut(x.Process.Stdout.String(), "\n")
		url = line
		return complete, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the invitation: %w", err)
	}
	cmd := x.Folder.Prepare(ctx, x.command(x.Client, x.Home+"/client", "ls", url))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("use the invitation: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Restart starts a server again that has ended, with the same flags and state.
func (x *Fxfer) Restart(ctx context.Context) error {
	args := append([]string{"serve", "--listen", ":" + strconv.Itoa(x.Port), "--name", x.Addr.String()}, x.flags...)
	var err error
	x.Process, err = x.Folder.Serve(ctx, x.command(x.Server, x.Home+"/server", args...), x.Port)
	return err
}

// Warm returns a command of the client, in the state that the previous command left.
func (x *Fxfer) Warm(args ...string) Command { return x.command(x.Client, x.Home+"/client", args...) }

// URL returns the URL of a path on the server. The first part of the path is the share.
func (x *Fxfer) URL(path string) string {
	return "fxfer://" + netip.AddrPortFrom(x.Addr, uint16(x.Port)).String() + "/" + path
}

// Cold returns a command of the client. The client's home is as it was after the invitation.
func (x *Fxfer) Cold(args ...string) (Command, error) { return x.ColdAs("fresh", args...) }

// ColdAs is Cold with a home of this name, so that several commands can run at once.
func (x *Fxfer) ColdAs(home string, args ...string) (Command, error) {
	fresh := x.Home + "/" + home
	if err := os.RemoveAll(x.Folder.Abs(fresh)); err != nil {
		return Command{}, err
	}
	if err := x.Folder.Mkdir(fresh); err != nil {
		return Command{}, err
	}
	entries, err := os.ReadDir(x.Folder.Abs(x.Home + "/client"))
	if err != nil {
		return Command{}, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			text, err := os.ReadFile(x.Folder.Abs(x.Home + "/client/" + e.Name()))
			if err == nil {
				err = x.Folder.Write(fresh+"/"+e.Name(), string(text))
			}
			if err != nil {
				return Command{}, err
			}
		}
	}
	return x.command(x.Client, fresh, args...), nil
}

func (x *Fxfer) command(host *lab.Host, home string, args ...string) Command {
	return Command{Host: host, Argv: slices.Concat([]string{x.Folder.Abs(cmp.Or(x.Program, "fxfer"))}, args), Env: []string{"FXFER_HOME=" + x.Folder.Abs(home)}, NetAdmin: x.NetAdmin}
}
