-- What each probed task says of the current policy, as it stood when a run that focuses on failures began; and the term of the score that
-- comes of it, of every decision. urgency: how much there is to learn from the task's like, 0..1; mode_family, complexity: of its expert plan.
CREATE TABLE focus (part_id VARCHAR, focus_id VARCHAR, policy_id VARCHAR, task_id VARCHAR, world VARCHAR, intent VARCHAR, domain VARCHAR, mode_family VARCHAR, complexity DOUBLE, k INTEGER, successes INTEGER, urgency DOUBLE);
ALTER TABLE decisions ADD COLUMN focus DOUBLE;
