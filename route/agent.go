package route

// Agent is what a caller, where its hints are trusted, says of the agent's
// workflow that a request is a step of. Without a workflow there is no agent
// context and the rest says nothing.
type Agent struct {
	// Workflow names one run of an agent, whose steps come one after another.
	// Where no session is named it stands for that too.
	Workflow string
	// Step names this step, or the kind of step that it is.
	Step string
	// ExpectedTools are the tools that the answer may call, at most
	// MaxExpectedTools: the workflow returns when they are done.
	ExpectedTools []string
	// StepsToExecution is how many steps of the workflow come before this agent
	// runs again, 0 or more (KVFlow, arXiv 2507.07400, section 3); -1 where
	// nothing is said of it.
	StepsToExecution int
}

// MaxExpectedTools bounds how many tools a request may name.
const MaxExpectedTools = 16

// MaxStepsToExecution bounds what a request may say of its workflow's steps.
const MaxStepsToExecution = 1 << 16

// session returns the name by which q's conversation is known.
func (q *Query) session() string {
	if q.Session == "" && q.Agent.Workflow != "" {
		return "workflow:" + q.Tenant + ":" + q.Agent.Workflow
	}
	return q.Session
}
