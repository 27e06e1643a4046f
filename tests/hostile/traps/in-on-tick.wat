;; attack: `on-tick` traps.
;; expect: on-tick -> trap

;; in on-tick:
unreachable
