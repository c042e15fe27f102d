package ftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

// command is what a client may ask for. An error of run ends the connection.
type command struct {
	run   func(x *control, arg string) error
	early bool // also before the login
	empty bool // also without an argument
	keeps bool // what REST and ALLO have said still counts after it
}

var commands map[string]command

func init() { // HELP lists them
	commands = map[string]command{
		"USER": {run: (*control).userName, early: true},
		"PASS": {run: (*control).password, early: true, empty: true},
		"AUTH": {run: (*control).auth, early: true},
		"PBSZ": {run: (*control).pbsz, early: true, keeps: true},
		"PROT": {run: (*control).prot, early: true, keeps: true},
		"FEAT": {run: (*control).feat, early: true, empty: true},
		"OPTS": {run: (*control).opts, early: true, keeps: true},
		"HELP": {run: (*control).help, early: true, empty: true},
		"NOOP": {run: says(200, "still here"), early: true, empty: true, keeps: true},
		"QUIT": {run: (*control).quit, early: true, empty: true},
		"SYST": {run: says(215, "UNIX Type: L8"), early: true, empty: true},
		"TYPE": {run: (*control).typ, keeps: true},
		"MODE": {run: only("S", "there is stream mode (S) only"), keeps: true},
		"STRU": {run: only("F", "there is file structure (F) only"), keeps: true},
		"ALLO": {run: (*control).allo, keeps: true},
		"PWD":  {run: (*control).pwd, empty: true}, "XPWD": {run: (*control).pwd, empty: true},
		"CWD": {run: (*control).chdir}, "XCWD": {run: (*control).chdir},
		"CDUP": {run: up, empty: true}, "XCUP": {run: up, empty: true},
		"PASV": {run: (*control).pasv, empty: true, keeps: true},
		"EPSV": {run: (*control).epsv, empty: true, keeps: true},
		"PORT": {run: (*control).port, keeps: true},
		"EPRT": {run: (*control).eprt, keeps: true},
		"LIST": {run: (*control).list, empty: true},
		"NLST": {run: (*control).nlst, empty: true},
		"MLSD": {run: (*control).mlsd, empty: true},
		"MLST": {run: (*control).mlst, empty: true},
		"STAT": {run: (*control).stat, empty: true},
		"SIZE": {run: (*control).fileSize},
		"MDTM": {run: (*control).mdtm},
		"MFMT": {run: (*control).mfmt},
		"HASH": {run: (*control).hash},
		"SITE": {run: (*control).site},
		"REST": {run: (*control).rest, keeps: true},
		"RETR": {run: (*control).retr},
		"STOR": {run: (*control).stor},
		"STOU": {run: (*control).stou, empty: true},
		"APPE": {run: (*control).appe},
		"DELE": {run: (*control).dele},
		"MKD":  {run: (*control).mkd}, "XMKD": {run: (*control).mkd},
		"RMD": {run: (*control).rmd}, "XRMD": {run: (*control).rmd},
		"RNFR": {run: (*control).rnfr},
		"RNTO": {run: (*control).rnto},
		"ABOR": {run: says(226, "nothing is under way"), empty: true},
	}
}

// run runs the command of a line. Its error ends the connection.
func (x *control) run(text string) error {
	name, arg, ok := parseLine(text)
	if !ok {
		return x.reply(500, "this is not a command")
	}
	c, known := commands[name]
	if !c.keeps { // a transfer that was refused leaves them to no other one
		defer func() { x.offset, x.size = 0, -1 }()
	}
	switch {
	case !known:
		return x.reply(502, "this server has no %s", name)
	case x.tree == nil && !c.early:
		return x.reply(530, "log in first, with USER and PASS")
	case arg == "" && !c.empty:
		return x.reply(501, "%s needs an argument", name)
	}
	return c.run(x, arg)
}

func says(code int, text string) func(*control, string) error {
	return func(x *control, _ string) error { return x.reply(code, "%s", text) }
}

// only accepts one argument.
func only(right, otherwise string) func(*control, string) error {
	return func(x *control, arg string) error {
		if strings.EqualFold(arg, right) {
			return x.reply(200, "all right")
		}
		return x.reply(504, "%s", otherwise)
	}
}

func (x *control) help(string) error {
	var names []string
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	return x.replyLines(214, "These commands are there:", []string{strings.Join(names, " ")})
}

func (x *control) quit(string) error {
	err := x.reply(221, "goodbye")
	x.bye()
	return cmp.Or(err, errQuit)
}

// Login and TLS.

func (x *control) userName(name string) error {
	switch {
	case x.tree != nil:
		return x.reply(530, "this connection has a user: begin another one")
	case !x.secure && !x.clear: // so the password does not come in clear
		return x.reply(530, "this server takes a login only with TLS: send AUTH TLS first, or set up the client for explicit TLS (FTPES)")
	}
	x.user = name
	return x.reply(331, "password, please")
}

func (x *control) password(password string) error {
	switch {
	case x.tree != nil:
		return x.reply(530, "this connection has a user: begin another one")
	case x.user == "":
		return x.reply(503, "send USER first")
	}
	name := x.user
	x.user = ""
	var account door.Account
	err, ended := x.during(func() string { return "comparing the password" }, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithDeadline(ctx, x.loginBy)
		defer cancel()
		account, err = x.door.server.Password(ctx, door.Client{Addr: x.raw.RemoteAddr(), Conn: x.raw}, name, password)
		return err
	})
	switch {
	case ended != nil:
		return ended
	case err != nil:
		if x.tries++; x.tries == maxTries {
			_ = x.reply(421, "too many passwords were wrong")
			return errTries
		}
		_, text := door.FaultOf(err)
		return x.reply(530, "%s", text)
	}
	left, err := account.LogIn()
	if err != nil {
		_, text := door.FaultOf(err)
		_ = x.reply(421, "%s", text)
		return err
	}
	x.admitted()
	x.user = name
	x.left, x.tree = left, door.NewTree(x.ctx, account)
	x.cwd = x.tree.Start()
	return x.reply(230, "welcome")
}

func (x *control) auth(arg string) error {
	switch {
	case x.secure:
		return x.reply(503, "this connection has TLS")
	case x.tree != nil:
		return x.reply(503, "AUTH comes before the login")
	case !slices.Contains([]string{"TLS", "TLS-C", "SSL", "TLS-P"}, strings.ToUpper(arg)):
		return x.reply(504, "there is AUTH TLS only")
	}
	if err := x.reply(234, "begin TLS"); err != nil {
		return err
	}
	x.user = ""
	return x.startTLS()
}

func (x *control) pbsz(string) error {
	if !x.secure {
		return x.reply(503, "send AUTH TLS first")
	}
	return x.reply(200, "PBSZ=0")
}

func (x *control) prot(arg string) error {
	switch level := strings.ToUpper(arg); {
	case !x.secure:
		return x.reply(503, "send AUTH TLS first")
	case level == "P":
		x.protect = true
		return x.reply(200, "data connections have TLS")
	case level == "C" && x.clear:
		x.protect = false
		return x.reply(200, "data connections have no TLS")
	case level == "C":
		return x.reply(534, "this server sends no data without TLS: use PROT P")
	}
	return x.reply(504, "there are PROT P and PROT C only")
}

// Features and settings.

func (x *control) feat(string) error {
	all := []string{"AUTH TLS", "EPSV", "HASH SHA-256*", "MDTM", "MFMT", factsFeature(x.facts), "PASV", "PBSZ", "PROT", "REST STREAM", "SIZE", "TVFS", "UTF8"}
	if x.door.opt.Active {
		all = append(all, "EPRT")
	}
	return x.replyLines(211, "Features:", all)
}

func (x *control) opts(arg string) error {
	name, value, _ := strings.Cut(arg, " ")
	switch name = strings.ToUpper(name); {
	case name == "UTF8" && (value == "" || strings.EqualFold(value, "on")):
		return x.reply(200, "names are UTF-8")
	case name == "MLST":
		x.facts = chooseFacts(value)
		return x.reply(200, "MLST OPTS %s", strings.Join(x.facts, ""))
	case name == "HASH" && (value == "" || strings.EqualFold(value, hashName)):
		return x.reply(200, "%s", hashName)
	}
	return x.reply(501, "there is no such option")
}

func (x *control) typ(arg string) error {
	switch strings.ToUpper(arg) {
	case "A", "A N":
		x.ascii = true
		return x.reply(200, "the ends of lines are converted")
	case "I", "L 8":
		x.ascii = false
		return x.reply(200, "files pass as they are")
	}
	return x.reply(504, "there are TYPE I and TYPE A only")
}

// allo notes the size of the file that comes next. So a file without TLS whose client has died can
// be told from a whole one.
func (x *control) allo(arg string) error {
	first, _, _ := strings.Cut(arg, " ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 {
		return x.reply(501, "%q is not a size", first)
	}
	x.size = n
	return x.reply(200, "all right")
}

func (x *control) rest(arg string) error {
	n, err := strconv.ParseInt(arg, 10, 64)
	switch {
	case err != nil || n < 0:
		return x.reply(501, "%q is not a position", arg)
	case n > 0 && x.ascii:
		return x.reply(504, "a file whose ends of lines are converted has no positions: send TYPE I first")
	}
	x.offset = n
	return x.reply(350, "the next transfer begins at %d", n)
}

// Folders and names.

// quote puts a path between quotes, RFC 959 appendix II.
func quote(p string) string { return `"` + strings.ReplaceAll(p, `"`, `""`) + `"` }

func (x *control) pwd(string) error { return x.reply(257, "%s", quote(x.cwd)) }

func (x *control) chdir(arg string) error {
	p := x.abs(arg)
	info, err := x.tree.Stat(p, true)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "enter", Path: p, Err: fs.ErrNotExist}
	}
	if err == nil {
		x.cwd = p
	}
	return x.answer(err, 250, "this is the folder now")
}

func up(x *control, _ string) error { return x.chdir("..") }

func (x *control) mkd(arg string) error {
	p := x.abs(arg)
	return x.answer(x.tree.Mkdir(p), 257, quote(p))
}

func (x *control) rmd(arg string) error {
	return x.answer(x.tree.Remove(x.abs(arg), true), 250, "removed")
}

func (x *control) dele(arg string) error {
	return x.answer(x.tree.Remove(x.abs(arg), false), 250, "removed")
}

func (x *control) rnfr(arg string) error {
	x.renaming = ""
	p := x.abs(arg)
	_, err := x.tree.Stat(p, false)
	if err == nil {
		x.renaming = p
	}
	return x.answer(err, 350, "what is the new name?")
}

func (x *control) rnto(arg string) error {
	if x.renaming == "" {
		return x.reply(503, "send RNFR first")
	}
	from := x.renaming
	x.renaming = ""
	return x.answer(x.tree.Rename(from, x.abs(arg), true), 250, "renamed")
}

// Files.

// file describes the file that an argument names.
func (x *control) file(arg string) (door.Info, error) {
	p := x.abs(arg)
	info, err := x.tree.Stat(p, true)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file: %w", p, door.ErrUnsupported)
	}
	return info, err
}

// fileSize replies the size in bytes, also where ends of lines are converted: many clients ask for it
// after a list, which they have asked for in TYPE A.
func (x *control) fileSize(arg string) error {
	info, err := x.file(arg)
	return x.answer(err, 213, strconv.FormatInt(info.Size(), 10))
}

func (x *control) mdtm(arg string) error {
	info, err := x.file(arg)
	return x.answer(err, 213, info.ModTime().UTC().Format(timeFormat))
}

func (x *control) mfmt(arg string) error {
	when, name, _ := strings.Cut(arg, " ")
	t, err := time.ParseInLocation(timeFormat, when, time.UTC)
	if err != nil || name == "" {
		return x.reply(501, "expected YYYYMMDDHHMMSS and a name")
	}
	p := x.abs(name)
	return x.answer(x.tree.Set(p, door.Change{ModTime: &t}), 213, fmt.Sprintf("Modify=%s; %s", t.Format(timeFormat), p))
}

// site changes the permissions of an entry: SITE CHMOD 644 NAME.
func (x *control) site(arg string) error {
	command, arg, _ := strings.Cut(arg, " ")
	octal, name, _ := strings.Cut(arg, " ")
	bits, err := strconv.ParseUint(octal, 8, 12)
	switch {
	case !strings.EqualFold(command, "CHMOD"):
		return x.reply(502, "there is SITE CHMOD only")
	case err != nil || name == "":
		return x.reply(501, "expected permissions, such as 644, and a name")
	}
	mode := fs.FileMode(bits).Perm()
	return x.answer(x.tree.Set(x.abs(name), door.Change{Mode: &mode}), 200, "changed")
}

// Data connections.

func (x *control) pasv(string) error {
	addr := x.door.opt.Public
	if !addr.IsValid() {
		addr = addrOf(x.raw.LocalAddr())
	}
	switch {
	case x.epsvAll:
		return x.reply(501, "EPSV ALL was sent")
	case !addr.Is4():
		return x.reply(425, "PASV has no form for IPv6: use EPSV")
	}
	return x.passive(func(port uint16) error {
		return x.reply(227, "Entering Passive Mode %s", formatPassive(addr, port))
	})
}

func (x *control) epsv(arg string) error {
	family := familyOf(addrOf(x.raw.LocalAddr()))
	switch {
	case strings.EqualFold(arg, "ALL"):
		x.epsvAll = true
		return x.reply(200, "only EPSV from now on")
	case arg != "" && arg != family:
		return x.reply(522, "this connection has one family: (%s)", family)
	}
	return x.passive(func(port uint16) error {
		return x.reply(229, "Entering Extended Passive Mode (|||%d|)", port)
	})
}

func (x *control) passive(told func(port uint16) error) error {
	x.setData(nil)
	l := x.door.opt.Ports.lease(x.client, x.user)
	if l == nil {
		return x.reply(425, "no passive port is free for this user at this address: try again later")
	}
	x.setData(l)
	return told(l.port())
}

func (x *control) port(arg string) error {
	to, err := parsePort(arg)
	return x.active(to, err)
}

func (x *control) eprt(arg string) error {
	to, err := parseExtendedPort(arg)
	return x.active(to, err)
}

func (x *control) active(to netip.AddrPort, err error) error {
	switch {
	case !x.door.opt.Active:
		return x.reply(502, "this server connects to no clients: use passive mode (PASV or EPSV)")
	case x.epsvAll:
		return x.reply(501, "EPSV ALL was sent")
	case errors.Is(err, errFamily):
		return x.reply(522, "%v", err)
	case err != nil:
		return x.reply(501, "%v", err)
	}
	if err := checkActive(to, x.client); err != nil {
		return x.reply(504, "%v", err)
	}
	x.setData(active{netip.AddrPortFrom(x.client, to.Port())})
	return x.reply(200, "all right")
}
