package engine

import (
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for in, want := range map[string]Spec{
		"http://h:8000":               {URL: "http://h:8000", Ranks: 1},
		"http://h:8000,engine=sglang": {URL: "http://h:8000", Engine: "sglang", Ranks: 1},
		"http://10.0.0.7:8000,events=tcp://10.0.0.7:5557,replay=tcp://10.0.0.7:5558": {
			URL: "http://10.0.0.7:8000", Events: "tcp://10.0.0.7:5557", Replay: "tcp://10.0.0.7:5558", Ranks: 1},
		"HTTPS://GPU-1.Example/,id=w1,engine=vllm,dp=4,model=org/m,preset=h100,events=tcp://*:5557,replay=tcp://g:5561": {
			URL: "https://gpu-1.example:443", ID: "w1", Engine: "vllm", Events: "tcp://*:5557", Replay: "tcp://g:5561", Ranks: 4, Model: "org/m", Preset: "h100"},
		"http://[FE80::1]": {URL: "http://[fe80::1]:80", Ranks: 1},
	} {
		got, err := ParseSpec(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", in, got, err, want)
			continue
		}
		if again, err := ParseSpec(got.String()); err != nil || again != got {
			t.Errorf("%s: printed as %s, which reads as %+v, %v", in, got, again, err)
		}
	}
}

func TestParseSpecErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "want http://host:port",
		"h:8000":                        "want http://",
		"ftp://h":                       "want http://",
		"http://":                       "no usable host",
		"http://u:p@h":                  "user or a password",
		"http://h/v1":                   "without path",
		"http://h?x=1":                  "without path",
		"http://h?":                     "without path",
		"http://h#f":                    "without path",
		"http://h#":                     "without path",
		"http://h:0":                    "out of range",
		"http://h:99999":                "out of range",
		"http://h:x":                    "URL",
		"http://h,events":               "is no key=value",
		"http://h,events=":              "is no key=value",
		"http://h,id=a,id=b":            "given twice",
		"http://h,evnts=tcp://h:1":      `unknown key "evnts"`,
		"http://h,dp=0":                 "want a number from 1 to 1024",
		"http://h,dp=2000":              "want 1 to 1024",
		"http://h,dp=two":               "want a number",
		"http://h,engine=trtllm":        "not supported",
		"http://h,replay=tcp://h:5558":  "needs events=",
		"http://h,events=h:5557":        "want tcp://host:port",
		"http://h,events=tcp://h:99999": "want tcp://host:port",
		"http://h,events=tcp://h:1,replay=tcp://h":                       "replay: ",
		"http://h,events=tcp://h:1,replay=tcp://*:2":                     "name a host",
		"http://h,events=tcp://h:65535,dp=2":                             "rank 1 would be 65536",
		"http://h,events=tcp://h:5557,replay=tcp://h:5558,dp=2":          "put them at least 2 apart",
		"http://h,events=tcp://h:5557,replay=tcp://h:5557":               "put them at least 1 apart",
		"http://h,admit=never":                                           "whole_prompt",
		"http://h,load=threshold":                                        "threshold:N",
		"http://h,load=threshold:-1":                                     "threshold:N",
		"http://h,tokens_per_step=0.5":                                   "1 to 64",
		"http://h,tokens_per_step=x":                                     "1 to 64",
		"http://h,model=a\nb":                                            "line break",
		"http://h,events=tcp://h:5557,replay=tcp://h:5560,dp=2,engine=x": "not supported",
	} {
		if _, err := ParseSpec(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	if _, err := ParseSpec("http://user:secret@h"); strings.Contains(err.Error()[len(`worker "http://user:secret@h"`):], "secret") {
		t.Errorf("the reason repeats a password: %v", err)
	}
}

// What is accepted prints back to itself.
func FuzzParseSpec(f *testing.F) {
	f.Add("http://h:8000,events=tcp://h:5557,replay=tcp://h:5559,dp=2,id=x,model=m,preset=p,engine=vllm")
	f.Add("http://h,admit=per_chunk,load=threshold:4096,tokens_per_step=2.5")
	f.Add("https://[::1%25eth0]:1,events=tcp://*:1")
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseSpec(s)
		if err != nil {
			return
		}
		again, err := ParseSpec(spec.String())
		if err != nil || again != spec {
			t.Fatalf("%q reads as %+v, prints as %q, reads as %+v, %v", s, spec, spec, again, err)
		}
		if _, err := NewWorker("c", spec); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBR06_ErrorsAboutAWorkerShowNoPassword: a URL with a password is refused
// by messages that don't repeat it.
func TestBR06_ErrorsAboutAWorkerShowNoPassword(t *testing.T) {
	for _, s := range []string{"http://u:s3cret@h", "ftp://u:s3cret@h", "http://u:s3cret@h:x", "http://u:s3cret@h,engine", "http://u:a,s3cret@h", "http://u:%zzs3cret@h", "http://u:s3cret@h,dp=1,dp=1"} {
		_, err := ParseSpec(s)
		_, also := Spec{URL: s}.Canonical()
		if err == nil || also == nil || strings.Contains(err.Error()+also.Error(), "s3cret") {
			t.Errorf("%s gave %v and %v", s, err, also)
		}
	}
}
