"""Start jobs as forks of a process that has imported their libraries; without it jobs run the same, more slowly."""
