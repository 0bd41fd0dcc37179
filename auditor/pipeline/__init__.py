"""An audit from PATHs to findings: options, plan, context, judgement."""
