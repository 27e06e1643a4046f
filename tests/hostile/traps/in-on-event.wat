;; attack: `on-event` traps.
;; expect: on-event -> trap

;; in on-event:
unreachable
