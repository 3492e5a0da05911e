//go:build linux

package real

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// starter starts processes from one thread that it keeps, so that the kernel
// kills them when that thread is gone, by whatever end the run comes to.
type starter struct {
	jobs chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{make(chan func()), make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// close ends the thread, and with it all that it started and that still runs.
func (s *starter) close() {
	close(s.jobs)
	<-s.done
}

// process is a child.
type process struct {
	cmd *exec.Cmd
	log string // the file with what it writes
	// ended is closed when it has ended and was waited for.
	ended chan struct{}

	mu    sync.Mutex
	still bool // it was stopped
}

// start runs a program in a namespace; what it writes goes to a new file.
func (s *starter) start(in *namespace, log string, env []string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer out.Close()
	// ip replaces itself by the program, so that the child is the program.
	cmd := exec.Command("ip", append([]string{"netns", "exec", in.name}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	s.jobs <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// running reports whether it has not ended; one that stands still has not.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends it as a crash does, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// stop has it end in order, and waits.
func (p *process) stop(patience time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.cmd.Args[4], patience)
	}
}

// pause has it stand still, or go on.
func (p *process) pause(still bool) error {
	sig := syscall.SIGCONT
	if still {
		sig = syscall.SIGSTOP
	}
	p.mu.Lock()
	p.still = still
	p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

func (p *process) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.still
}
