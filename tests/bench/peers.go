package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	ftpPort   = 2121
	rsyncPort = 8730
	sshPort   = 2222
	smbPort   = 4450
	httpPort  = 8080
	tarPort   = 9999

	parallel = 8  // connections of programs that can have several
	manyFew  = 64 // the same for a tree of small files
)

// peers are the competitors, with the settings that were best for them.
func peers() []contender {
	return []contender{
		{
			name: "tar", clear: true, blind: true, needs: []string{"tar", "socat"}, serve: serveTar, transfer: tar,
			settings: "tar c into socat, over one connection from socat into tar x",
		},
		{
			name: "lftp", clear: true, needs: []string{"lftp", "vsftpd"}, serve: serveFTP, transfer: lftp,
			settings: "lftp fetches from vsftpd over 8 connections (put has no parallel upload of one file), a tree over 64, times as listed",
		},
		{
			name: "rsync", clear: true, needs: []string{"rsync"}, serve: serveRsync, transfer: rsync,
			settings: "to an rsync daemon, whole files, no compression; a tree with -a",
		},
		{
			name: "scp", needs: []string{"scp", "sshd"}, serve: serveSSH, transfer: scp,
			settings: "to OpenSSH's sshd, AES-128-GCM, no compression, 1024 requests in flight",
		},
		{
			name: "smbclient", clear: true, needs: []string{"smbclient", "smbd"}, serve: serveSMB, transfer: smb,
			settings: "to smbd, SMB 3.1.1, unsigned, 8 MiB writes",
		},
		{
			name: "rclone", clear: true, needs: []string{"rclone"}, serve: serveHTTP, transfer: rclone,
			settings: "rclone copy fetches from rclone serve http over 8 streams a file, 64 files of a tree at once",
		},
	}
}

// missing returns an error that names the programs of c that are not installed.
func (c *contender) missing() error {
	var absent []string
	for _, name := range c.needs {
		if _, err := exec.LookPath(find(name)); err != nil {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("not installed: %s", strings.Join(absent, ", "))
	}
	return nil
}

// configured starts a server that reads a configuration file.
func (s *stage) configured(ctx context.Context, c hosts.Command, port int, name, text string) error {
	if err := s.Write(name, text); err != nil {
		return err
	}
	_, err := s.Serve(ctx, c, port)
	return err
}

// connections returns how many connections a peer opens for l, if it can have several.
func (l *load) connections() int {
	if l.tree() {
		return manyFew
	}
	return max(parallel, l.files)
}

// Each end closes its side of the connection when it has nothing more to send, and waits for the
// other side. The sender's socat ends when the receiver's tar has written everything.
const socatOptions = "-b 1048576 -t 600"

func serveTar(ctx context.Context, s *stage) error {
	argv := append([]string{find("socat")}, strings.Fields(socatOptions)...)
	argv = append(argv, fmt.Sprintf("TCP-LISTEN:%d,reuseaddr,fork", tarPort), "EXEC:tar xf - -C in")
	_, err := s.Serve(ctx, hosts.Command{Host: s.receiver, Argv: argv}, tarPort)
	return err
}

func tar(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	line := fmt.Sprintf("tar cf - -C %s . | socat %s STDIO TCP:%s", l.dir, socatOptions, hostPort(s.receiverAddr, tarPort))
	return hosts.Command{Host: s.sender, Argv: []string{"sh", "-c", line}}, nil
}

func serveFTP(ctx context.Context, s *stage) error {
	c := hosts.Command{Host: s.sender, Argv: []string{find("vsftpd"), "conf/vsftpd.conf"}}
	return s.configured(ctx, c, ftpPort, "conf/vsftpd.conf", vsftpdConfig(ftpPort, s.Path))
}

// vsftpdConfig lets everybody read what is in the folder root.
func vsftpdConfig(port int, root string) string {
	return fmt.Sprintf(`listen=YES
listen_ipv6=NO
listen_port=%d
background=NO
run_as_launching_user=YES
anonymous_enable=YES
no_anon_password=YES
anon_root=%s
local_enable=NO
seccomp_sandbox=NO
connect_from_port_20=NO
xferlog_enable=NO
`, port, root)
}

func lftp(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	script := "set ftp:ssl-allow no; set file:use-fallocate no; set xfer:buffer-size 1048576; set pget:save-status never; " +
		"open -p " + strconv.Itoa(ftpPort) + " ftp://" + s.senderAddr.String() + "; "
	if l.files == 1 {
		script += fmt.Sprintf("pget -n %d -O in %s", parallel, l.paths()[0])
	} else {
		// Without these lines lftp asks for the time and size of each file, one after the other.
		script += fmt.Sprintf("set ftp:use-mdtm no; set ftp:use-size no; set ftp:sync-mode no; mirror --parallel=%d %s in", l.connections(), l.dir)
	}
	return hosts.Command{Host: s.receiver, Argv: []string{find("lftp"), "-c", script}}, nil
}

func serveRsync(ctx context.Context, s *stage) error {
	c := hosts.Command{Host: s.receiver, Argv: []string{find("rsync"), "--daemon", "--no-detach", "--config=conf/rsyncd.conf"}}
	return s.configured(ctx, c, rsyncPort, "conf/rsyncd.conf", fmt.Sprintf(`port = %d
use chroot = no
log file = /dev/null
[in]
path = %s
read only = no
`, rsyncPort, s.Abs("in")))
}

func rsync(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	what := "-rt"
	if l.tree() {
		what = "-a"
	}
	return hosts.Command{Host: s.sender, Argv: []string{find("rsync"), what, "--whole-file", "--no-compress", l.dir + "/",
		"rsync://" + hostPort(s.receiverAddr, rsyncPort) + "/in/"}}, nil
}

func serveSSH(ctx context.Context, s *stage) error {
	for _, key := range []string{"conf/host", "conf/user"} {
		if _, err := os.Stat(s.Abs(key)); err == nil {
			continue // left from an earlier stage
		}
		cmd := s.Prepare(ctx, hosts.Command{Host: s.sender, Argv: []string{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key}})
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make a key: %w: %s", err, out)
		}
	}
	// sshd has to be called by its full path, because it runs itself for each connection. Without
	// PAM it refuses "nobody" as a locked account.
	c := hosts.Command{Host: s.receiver, Argv: []string{find("sshd"), "-D", "-e", "-f", s.Abs("conf/sshd_config")}}
	return s.configured(ctx, c, sshPort, "conf/sshd_config", fmt.Sprintf(`Port %d
HostKey %s
AuthorizedKeysFile %s
StrictModes no
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
Subsystem sftp internal-sftp
`, sshPort, s.Abs("conf/host"), s.Abs("conf/user.pub")))
}

func scp(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	argv := []string{find("scp"), "-q", "-r", "-P", strconv.Itoa(sshPort), "-i", "conf/user", "-c", "aes128-gcm@openssh.com", "-X", "nrequests=1024",
		"-o", "Compression=no", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"}
	argv = append(argv, l.paths()...)
	return hosts.Command{Host: s.sender, Argv: append(argv, "nobody@"+s.receiverAddr.String()+":"+s.Abs("in")+"/")}, nil
}

func serveSMB(ctx context.Context, s *stage) error {
	config, err := s.SMBConfig(smbPort, "conf/smb", "socket options = TCP_NODELAY")
	if err != nil {
		return err
	}
	c := hosts.Command{Host: s.receiver, Argv: []string{find("smbd"), "--foreground", "--no-process-group", "--debug-stdout", "--configfile=" + s.Abs("conf/smb.conf")}}
	return s.configured(ctx, c, smbPort, "conf/smb.conf", config)
}

func smb(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	var script strings.Builder
	for i, path := range l.paths() {
		fmt.Fprintf(&script, "put %s %s; ", path, l.names[i])
	}
	return hosts.Command{Host: s.sender, Argv: []string{find("smbclient"), "//" + s.receiverAddr.String() + "/in", "-p", strconv.Itoa(smbPort), "-N", "-m", "SMB3",
		"--option=socket options = TCP_NODELAY", "-c", strings.TrimSuffix(script.String(), "; ")}}, nil
}

func serveHTTP(ctx context.Context, s *stage) error {
	_, err := s.Serve(ctx, hosts.Command{Host: s.sender, Argv: []string{find("rclone"), "--config=", "serve", "http", ".", "--read-only",
		"--addr", hostPort(s.senderAddr, httpPort)}}, httpPort)
	return err
}

func rclone(_ context.Context, s *stage, l *load, _ []string) (hosts.Command, error) {
	connections := strconv.Itoa(l.connections())
	return hosts.Command{Host: s.receiver, Argv: []string{find("rclone"), "--config=", "copy", "--http-url", "http://" + hostPort(s.senderAddr, httpPort) + "/" + l.dir + "/",
		":http:", "in", "--multi-thread-streams", strconv.Itoa(parallel), "--multi-thread-cutoff", "1M", "--transfers", connections,
		"--checkers", connections, "--local-no-preallocate"}}, nil
}
