<?php

namespace Journal\Entity;

enum Section: string
{
    case News = 'news';
    case Politics = 'politics';
    case Economy = 'economy';
    case Science = 'science';
    case Technology = 'technology';
    case Health = 'health';
    case Culture = 'culture';
    case Books = 'books';
    case Music = 'music';
    case Travel = 'travel';
    case Food = 'food';
    case Sports = 'sports';
}
