;; attack: Declares that it may not do anything.
;; expect: instantiate -> out-of-fuel

;; in component:
(@custom "pointsman:limits" "start_fuel: 1\0a")
