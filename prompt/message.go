package prompt

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// How many containers are open where a message's own names stand, and those of
// a part of its content.
const (
	messageDepth = 3
	partDepth    = 5
)

// message is what is told of a message besides where it is.
type message struct {
	role  role
	items uint16 // media items in its content
}

// role is who speaks, as far as templates care: what follows a user's message
// may change how what was before it is rendered.
type role uint8

const (
	otherRole role = iota
	userRole
	systemRole // system or developer
	assistantRole
)

// noteRole notes the role of the message being read, as it stands between
// quotes. Of two the last counts.
func (s *Scanner) noteRole(text []byte) {
	s.isRole = false
	all := s.members[memberMessages].messages
	if len(all) == 0 {
		return
	}
	if bytes.IndexByte(text, '\\') >= 0 && len(text) <= maxRoleBytes {
		text, _ = jsontext.AppendUnquote(nil, append(append([]byte{'"'}, text...), '"'))
	}
	r := otherRole
	switch string(text) {
	case "user":
		r = userRole
	case "system", "developer":
		r = systemRole
	case "assistant":
		r = assistantRole
	}
	all[len(all)-1].role = r
}

// maxRoleBytes is more than any role takes with all of it escaped.
const maxRoleBytes = 64

// noteItem counts a media item of the message being read.
func (s *Scanner) noteItem() {
	if all := s.members[memberMessages].messages; len(all) > 0 && all[len(all)-1].items < 1<<16-1 {
		all[len(all)-1].items++
	}
}

// isMediaName reports whether a part of a message's content that has a member
// of this name, in quotes, is no text.
func isMediaName(quoted []byte) bool {
	switch string(quoted) {
	case `"image_url"`, `"input_audio"`, `"video_url"`, `"audio_url"`, `"image"`, `"image_pil"`, `"image_embeds"`, `"audio"`, `"video"`, `"file"`:
		return true
	}
	return false
}

// maxOthers bounds how many members a body may have that routing does not know.
// Nothing is learned of the prompt of one with more.
const maxOthers = 64

// endOther notes where a member of others ends.
func (s *Scanner) endOther(end int) {
	if len(s.others) > maxOthers {
		s.others = s.others[:maxOthers+1] // enough to tell that there are too many
	}
	s.others[len(s.others)-1].End = end
}

// irrelevant reports whether a top-level member of this name, in quotes, is
// known not to change which tokens an engine makes of the messages: it is about
// sampling, about the answer or about the request as such. A member that nobody
// knows may change them, so it counts; at worst a prompt is then not known again.
func irrelevant(quoted []byte) bool {
	switch string(quoted[1 : len(quoted)-1]) {
	case "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "stop_token_ids", "stop_regex", "min_tokens", "ignore_eos",
		"frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "logit_bias",
		"logprobs", "top_logprobs", "prompt_logprobs", "best_of", "use_beam_search", "early_stopping",
		"skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens", "include_stop_str_in_output",
		"return_token_ids", "return_tokens_as_token_ids", "return_cached_tokens_details", "return_hidden_states", "stream_interval",
		"user", "metadata", "store", "service_tier", "safety_identifier", "priority", "request_id", "rid", "session_id", "session_params",
		"kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room":
		return true
	}
	return false
}
